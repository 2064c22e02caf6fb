// expression: writes the graph of one rank's forwards as text, and finds the parameters that its
// backward calls reach. Internal to report/.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reference/program.h"

namespace lockstep::properties {

// The outputs of one forward, "p0(p1)" or "a, p2(a) where a = p1", with one text for each output. A
// long text is shortened to "f(p0, p1, p2)", which names only the parameters.
struct ForwardText {
  std::vector<std::string> outputs;
  std::string where;  // definitions such as "a = p0(p1), b = split(a)", or empty
};
ForwardText text_of(const reference::Program& program, const reference::Forward& forward,
                    char& next_name, std::size_t max_length);

// Returns, for each parameter that owns its tensor and trains, whether the pass's backward calls
// reach it.
std::vector<bool> reached_by(const reference::Program& program, const reference::RankPass& pass);

// Counts the nodes in the forward's graph and its bodies.
std::size_t node_count(const std::vector<reference::Node>& nodes);

}  // namespace lockstep::properties
