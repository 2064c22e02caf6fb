#include "properties/generate/tensors.h"

#include <algorithm>
#include <array>

#include "properties/generate/change.h"
#include "properties/generate/graph.h"
#include "properties/generate/reach.h"

namespace lockstep::properties {
namespace {

using reference::DType;
using reference::Parameter;
using reference::Program;
using reference::RankPass;
using reference::Step;
using reference::ZeroGrad;

// Gives parameters the sizes of an earlier one, so that their gradients can be swapped.
void make_alike(Random& random, std::vector<Parameter>& parameters) {
  std::vector<bool> has_like(parameters.size());  // its shares or copies have its sizes
  for (std::size_t i = 0; i < parameters.size(); ++i)
    has_like[i - parameters[i].copy_of - parameters[i].shared_with] = !is_original(parameters[i]);
  const auto may_be = [&](std::size_t i) {
    return is_original(parameters[i]) && reference::is_reduced(parameters[i]) &&
           !parameters[i].sparse && !has_like[i];
  };
  for (std::size_t i = 1; i < parameters.size(); ++i) {
    const Parameter& before = parameters[i - 1];
    Parameter& parameter = parameters[i];
    if (!may_be(i - 1) || !may_be(i) || !random.percent(80)) continue;
    if (parameter.dtype == before.dtype && parameter.column_major == before.column_major)
      parameter.sizes = before.sizes;
  }
}

}  // namespace

// The parameter that is first in the list is last in the buckets.
void draw_empty_bucket(Random random, const GenerateOptions& options, Program& program) {
  if (!random.percent(7) || !options.capabilities.has(Capability::kZeroSize)) return;
  program.options.first_bucket_bytes = program.options.bucket_bytes = 1;
  const auto last = std::find_if(program.parameters.begin(), program.parameters.end(),
                                 [](const Parameter& each) { return reference::is_reduced(each); });
  if (last == program.parameters.end()) return;
  last->sizes = {0};
  for (std::size_t p = 0; p < program.parameters.size(); ++p) follows_owner(program, p);
}

void draw_bad_number(Random random, const GenerateOptions& options, Program& program) {
  const Capabilities can = options.capabilities;
  if (!random.percent(4) || !can.has(Capability::kSpecial) || !can.has(Capability::kRounding))
    return;
  if (program.values == reference::Values::kSpecial) return;
  std::vector<reference::BadNumber> places;
  for (std::uint32_t s = 0; s < program.steps.size(); ++s) {
    const Step& step = program.steps[s];
    if (step.kind == reference::PassKind::kNoGrad) continue;
    for (std::uint32_t rank = 0; rank < program.world; ++rank) {
      const auto note = [&](const reference::Node& node) {
        const auto count = static_cast<std::uint32_t>(program.parameters.size());
        const std::uint32_t owner = reference::owner_of(program, node.parameter % count);
        if (node.kind != reference::Node::Kind::kUse || program.parameters[owner].frozen) return;
        places.push_back({{}, rank, s, owner, 0});
      };
      for (const auto& forward : step.variants[rank % step.variants.size()].forwards)
        for_each_node_in(forward.nodes, note);
    }
  }
  if (places.empty()) return;
  reference::BadNumber& bad = program.bad_number;
  bad = places[random.below(static_cast<std::uint32_t>(places.size()))];
  bad.kind = static_cast<reference::BadNumber::Kind>(random.between(1, 3));
  Parameter& parameter = program.parameters[bad.parameter];
  if (random.percent(50)) {
    parameter.sizes = {random.between(512, 1500)};
    parameter.column_major = false;
    for (std::size_t p = 0; p < program.parameters.size(); ++p) follows_owner(program, p);
  }
  const auto values = static_cast<std::uint32_t>(reference::value_count(parameter));
  if (values > 0 && random.percent(80)) bad.element = 1 + random.below(values);
}

void draw_state(Random random, const GenerateOptions& options, Program& program) {
  if (!random.percent(36) || !options.capabilities.has(Capability::kState)) return;
  program.options.with_values = random.percent(45);
  program.options.keep_buffers = random.percent(15);
  constexpr std::array<std::uint16_t, 5> kLimits{1, 24, 64, 100, 256};
  if (random.percent(75)) program.options.chunk_bytes = kLimits[random.below(kLimits.size())];
  const std::uint32_t count = random.percent(85) ? random.between(1, 4) : 0;
  const bool two_devices = options.capabilities.has(Capability::kTwoDevices) && random.percent(40);
  for (std::uint32_t b = 0; b < count; ++b) {
    reference::Buffer& buffer = program.buffers.emplace_back();
    buffer.key = random.word();
    const std::array<std::uint16_t, 4> dtypes{40, 30, 15, 15};
    buffer.dtype = static_cast<DType>(random.weighted(dtypes));
    if (random.percent(8))
      buffer.sizes = {0};
    else if (random.percent(25))
      buffer.sizes = {random.between(2, 4), random.between(2, 6)};
    else if (random.percent(70))
      buffer.sizes = {random.between(1, 40)};
    buffer.column_major = buffer.sizes.size() > 1 && random.percent(50);
    buffer.device = two_devices && random.percent(50) ? 1 : 0;
    buffer.ignored = random.percent(15);
    buffer.replaced = random.percent(30);
  }
  const bool has_replicas =
      std::any_of(program.parameters.begin(), program.parameters.end(),
                  [](const Parameter& parameter) { return parameter.copy_of > 0; });
  for (std::uint32_t b = 0; has_replicas && b < count; ++b) {
    if (!random.percent(70)) continue;
    reference::Buffer copy = program.buffers[b];
    copy.key = random.word();
    copy.copy_of = static_cast<std::uint32_t>(program.buffers.size()) - b;
    program.buffers.push_back(copy);
  }
}

void draw_sparse(Random random, const GenerateOptions& options, Program& program) {
  if (!random.percent(16) || !options.capabilities.has(Capability::kSparse)) return;
  const std::uint32_t share = random.percent(25) ? 100 : 45;
  const bool zero_size = options.capabilities.has(Capability::kZeroSize);
  for (std::size_t p = 0; p < program.parameters.size(); ++p) {
    Parameter& parameter = program.parameters[p];
    if (follows_owner(program, p)) continue;
    parameter.sparse = random.percent(share);
    const std::uint32_t rows = random.percent(20) ? 1 : random.between(2, 12);
    const std::uint32_t columns = random.between(1, 6);
    const bool has_columns = random.percent(60);
    const bool is_empty = random.percent(4) && zero_size;
    if (!parameter.sparse) continue;
    parameter.sizes = {rows};
    if (has_columns) parameter.sizes.push_back(columns);
    if (is_empty)
      parameter.sizes[random.below(static_cast<std::uint32_t>(parameter.sizes.size()))] = 0;
  }
  const std::uint32_t most = random.percent(20) ? 20 : 6;
  const auto draw_entries = [&](reference::Node& node) {
    const std::uint32_t entries = random.below(most);  // 0 for some
    const auto& used = program.parameters[node.parameter % program.parameters.size()];
    if (node.kind == reference::Node::Kind::kUse && used.sparse) node.entries = entries;
  };
  for_each_node(program, draw_entries);
}

void draw_requires_grad(Random random, const GenerateOptions& options, Program& program) {
  const Capabilities can = options.capabilities;
  const bool is_able = can.has(Capability::kRequiresGrad) && can.has(Capability::kErrors);
  if (!random.percent(4) || !is_able) return;
  const std::uint32_t share = random.percent(30) ? 30 : 6;
  for_each_node(program, [&](reference::Node& node) {
    if (node.kind == reference::Node::Kind::kUse) node.requires_grad = random.percent(share);
  });
}

void draw_set_gradients(Random random, const GenerateOptions& options, Program& program) {
  if (!random.percent(30) || !options.capabilities.has(Capability::kSetGradients)) return;
  if (program.options.mode == reference::Mode::kStatic && fails(program))
    return;  // the failure is intended
  change_legally(options, program, [&](Program& changed) {
    if (random.percent(75)) make_alike(random, changed.parameters);
    for (Step& step : changed.steps) {
      if (!random.percent(step.zero_grad == ZeroGrad::kKeep ? 80 : 30)) continue;
      step.zero_grad = random.percent(35) ? ZeroGrad::kReplace : ZeroGrad::kSwap;
    }
  });
}

}  // namespace lockstep::properties
