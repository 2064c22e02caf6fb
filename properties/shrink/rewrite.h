// rewrite: changes of a program that keep its parts consistent: what deletes a thing also moves the
// indices that meant it or what stands behind it. Programs are normalized before; the caller
// normalizes afterwards. Internal to shrink/.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "properties/case/case.h"

namespace lockstep::properties {

// A list of nodes with the outputs that point into it; a body has none: its last node is its
// output.
struct NodeList {
  std::vector<reference::Node>* nodes = nullptr;
  std::vector<reference::Input>* outputs = nullptr;
};
// In a fixed order, bodies after what holds them. Pointers are good until something is deleted.
std::vector<NodeList> node_lists(reference::Program& program);

// Items [first, last) of the list.
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

// Consumers of a dropped node get its inputs.
void drop_nodes(const NodeList& list, Range range);
void inline_body(const NodeList& list, std::size_t node);

// The graphs of two forwards side by side in the first one; both are kept, or both dropped.
void merge_forward(reference::RankPass& pass, std::size_t second);

// One forward that uses every parameter that trains, one behind the other.
reference::RankPass plain_pass(const reference::Program& program);

}  // namespace lockstep::properties
