// rewrite: changes a program and keeps its parts consistent: a function that deletes an item also
// updates the indices that refer to it or to items behind it. Programs must be normalized before;
// the caller normalizes them afterwards. Internal to shrink/.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "properties/case/case.h"

namespace lockstep::properties {

// A list of nodes with the outputs that refer to it. A body has no outputs: its last node is its
// output.
struct NodeList {
  std::vector<reference::Node>* nodes = nullptr;
  std::vector<reference::Input>* outputs = nullptr;
};
// Returns the lists in a fixed order; bodies follow the list that contains them. The pointers are
// valid until something is deleted.
std::vector<NodeList> node_lists(reference::Program& program);

// The items [first, last) of a list.
struct Range {
  std::size_t first = 0;
  std::size_t last = 0;
  bool has(std::size_t index) const { return index >= first && index < last; }
};

void drop_steps(Case& value, Range range);
void drop_rank(Case& value, std::uint32_t rank);
void drop_parameters(reference::Program& program, Range range);
void drop_buffer(std::vector<reference::Buffer>& buffers, std::size_t dropped);
void merge_parameter(reference::Program& program, std::uint32_t parameter);
void unshare(reference::Program& program, std::uint32_t parameter);

// The consumers of a dropped node get its inputs.
void drop_nodes(const NodeList& list, Range range);
void inline_body(const NodeList& list, std::size_t node);

// Puts the graphs of two forwards side by side into the first one. Either both or neither are
// dropped forwards.
void merge_forward(reference::RankPass& pass, std::size_t second);

// Returns a pass with one forward that uses every parameter that trains, one behind the other.
reference::RankPass plain_pass(const reference::Program& program);

}  // namespace lockstep::properties
