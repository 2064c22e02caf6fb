#include "properties/shrink/size.h"

#include <fmt/format.h>

#include "properties/shrink/walk.h"

namespace lockstep::properties {
namespace {

using reference::Node;

std::uint64_t bits_of(std::uint32_t key) { return static_cast<std::uint64_t>(std::bit_width(key)); }

void add_nodes(const std::vector<Node>& nodes, std::uint64_t depth, Size& size) {
  for (const Node& node : nodes) {
    // A node in a checkpoint counts more than one outside.
    size.records += 1 + depth + node.inputs.size();
    size.detail += bits_of(node.key);
    add_nodes(node.body, depth + 1, size);
  }
}

void add_step(const reference::Step& step, Size& size) {
  size.detail += bits_of(step.key);
  for (const reference::RankPass& pass : step.variants) {
    size.records += 1;
    for (const reference::Forward& forward : pass.forwards) {
      size.records += 1 + forward.outputs.size();
      add_nodes(forward.nodes, 0, size);
    }
    for (const reference::Backward& backward : pass.backwards)
      size.records += 1 + backward.roots.size();
  }
}

// One element is simplest. A second dimension counts more than many elements; a parameter without
// elements is a special case.
void add_parameter(const reference::Parameter& parameter, Size& size) {
  constexpr std::uint64_t kFurtherDimension = 64;
  size.detail += bits_of(parameter.key) + parameter.shared_with + parameter.copy_of;
  if (!parameter.sizes.empty()) size.detail += 1 + kFurtherDimension * (parameter.sizes.size() - 1);
  for (const std::uint32_t extent : parameter.sizes) size.detail += extent == 0 ? 2 : extent - 1;
}

}  // namespace

Size size_of(const Case& value) {
  const reference::Program& program = value.program;
  Size size;
  size.ranks = program.world;
  size.steps = program.steps.size();
  size.parameters = program.parameters.size();
  size.faults = value.faults.faults.size();
  for (const reference::Step& step : program.steps) add_step(step, size);
  for (const reference::Parameter& parameter : program.parameters) add_parameter(parameter, size);
  // Uneven inputs count more than the few variants that they can replace.
  constexpr std::uint64_t kJoin = 16;
  if (!program.steps_per_rank.empty()) size.records += kJoin + program.steps_per_rank.size();
  for (const reference::Buffer& buffer : program.buffers) {
    size.records += 1;
    size.detail += bits_of(buffer.key);
    for (const std::uint32_t extent : buffer.sizes) size.detail += 1 + extent;
  }
  size.random_schedule = value.schedule.policy != Schedule::Policy::kDefault ? 1 : 0;
  size.deviations = value.schedule.deviations.size();
  size.detail += bits_of(program.key) + static_cast<std::uint64_t>(value.schedule.policy);
  if (value.schedule.seed != 0) size.detail += value.schedule.seed < 4 ? 1 : 2;
  walk_fields(value, [&size](std::uint32_t, const auto& field, const auto& simplest) {
    size.detail += distance(field, simplest);
  });
  return size;
}

std::string to_string(const Size& size) {
  return fmt::format(
      "{} ranks, {} steps, {} parameters, {} faults, {} records, {} schedule, {} deviations, "
      "detail {}",
      size.ranks, size.steps, size.parameters, size.faults, size.records,
      size.random_schedule != 0 ? "random" : "default", size.deviations, size.detail);
}

}  // namespace lockstep::properties
