// Model says what a rank that trains alone (lone_rank.cc) must get by the contract: gradients,
// ready order and number of passes. The gradients are small whole numbers, so no sum is rounded.
//
// Threads: the one that trains.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "properties/components/lone_rank_peer.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace lone_rank {

enum class Mode : std::uint8_t { kPlain, kDynamic, kStatic };

// The options with which the rank's reducer is constructed.
struct Setup {
  Mode mode = Mode::kPlain;
  bool is_view = false;
  bool is_after_backward = false;
  bool has_second_group = false;
  bool rebuilds = false;
  bool is_hooked = false;
  std::uint64_t limit = 1;  // of a bucket, in bytes
};

// What the user calls.
enum class Call : std::uint8_t {
  kConstruct,
  kReset,
  kForward,
  kModule,  // a forward whose module fails
  kBackward,
  kLocalBackward,
  kEndJoin
};

// What the user has done before the next call.
struct UserState {
  bool has_swapped = false;  // two gradients, in the step before
  bool is_joining = false;
  bool is_window_open = false;
  bool tells_failure = false;  // the flight record has a failure until a pass begins (T1)
};

// A parameter that is reduced.
struct Known {
  Ref<Parameter> parameter;
  bool is_sparse = false;
  std::size_t listed = 0;          // its place among all parameters, frozen ones included
  std::optional<Floats> gradient;  // of a sparse one, all rows
  bool is_used = false;            // by this rank, since the last result
  bool is_in_use = false;          // by some rank in the first pass (P11)
  bool requires_grad = false;

  void forget() {
    gradient.reset();
    is_used = requires_grad = false;
  }

  void accumulate(const Floats& arrived) {
    if (!gradient) gradient.emplace(arrived.size(), 0.0f);
    for (std::size_t i = 0; i < arrived.size(); ++i) (*gradient)[i] += arrived[i];
    is_used = true;
  }
};

struct Model {
  explicit Model(const Setup& chosen) : setup(chosen) {}

  const Setup& setup;
  std::vector<Known> known;
  std::int64_t passes = 0;                        // in this group
  bool has_completed = false;                     // a pass in this group
  std::vector<std::size_t> outputs;               // of the last synced pass, as places in `known`
  std::optional<std::vector<std::size_t>> order;  // of the rebuilt buckets (B2)

  // Forgets the passes of the group before.
  void begin_group() {
    has_completed = false;
    order.reset();
    passes = 0;
    for (Known& each : known) each.is_in_use = false;
  }

  // A pass that used `used`, in the order of their nodes.
  void complete_pass(const std::vector<std::size_t>& used, const Peer& peer) {
    if (!order && !setup.is_after_backward && setup.rebuilds) {
      order.emplace();
      for (std::size_t i = 0; i < known.size(); ++i)
        if (std::find(used.begin(), used.end(), i) == used.end()) order->push_back(known[i].listed);
      // Nodes run from the last one on.
      for (std::size_t i = used.size(); i-- > 0;) order->push_back(known[used[i]].listed);
    }
    reduce(peer, false);
  }

  // The result of a pass, which a rank without inputs shadows: G1, G5, P11, S1, S2.
  void reduce(const Peer& peer, bool is_shadowed) {
    for (std::size_t i = 0; i < known.size(); ++i) {
      Known& each = known[i];
      const bool is_used = (each.is_used && !is_shadowed) || peer.uses[i];
      if (!has_completed && setup.mode == Mode::kStatic) each.is_in_use = is_used;
      if (setup.mode == Mode::kDynamic && !is_used) continue;
      if (setup.mode == Mode::kStatic && !each.is_in_use) continue;
      const auto elements = static_cast<std::size_t>(each.parameter->shape().elements());
      if (!each.gradient || is_shadowed) each.gradient = Floats(elements, 0.0f);
      for (float& element : *each.gradient)
        if (!each.is_sparse) element = element / kRanks + kOfPeer;
      each.is_used = each.requires_grad = false;
    }
    has_completed = true;
    ++passes;
  }
};

// Returns the elements of a gradient, of all rows if it is sparse.
inline Floats values_of(const Tensor& gradient, const Known& known) {
  Floats values(static_cast<std::size_t>(known.parameter->shape().elements()), 0.0f);
  const auto* const data = reinterpret_cast<const float*>(gradient.data());
  if (!known.is_sparse) {
    std::copy_n(data, values.size(), values.begin());
    return values;
  }
  const auto width = static_cast<std::size_t>(known.parameter->shape().sizes[1]);
  for (std::size_t entry = 0; entry < gradient.rows().size(); ++entry)
    for (std::size_t w = 0; w < width; ++w)
      values[static_cast<std::size_t>(gradient.rows()[entry]) * width + w] +=
          data[entry * width + w];
  return values;
}

// Returns what is wrong with the error of a hook that has failed.
inline std::string flaw_of_hooks_error(const Mishap& mishap, const Failure& failure) {
  if (mishap.hook_flaw == HookFlaw::kThrowsNoMemory)
    return failure.code == Code::kOutOfMemory ? "" : "memory is refused, and this is reported";
  if (failure.code != Code::kUserFailure) return "a hook fails, and this is reported";
  if (failure.rank != 0 || failure.suspect != kNone)
    return "the error of a hook blames another rank";
  if (failure.sequence != kNone || !failure.collective.empty())
    return "the error of a hook names a collective";
  const bool has_text =
      mishap.hook_flaw == HookFlaw::kError || mishap.hook_flaw == HookFlaw::kThrows;
  const bool says_whose = failure.detail.find(kHookName) != std::string::npos &&
                          (!has_text || failure.detail.find(kHookText) != std::string::npos);
  return says_whose ? "" : "the error of a hook does not say which hook, or not why";
}

// The error names the collective and the bucket (F2). A collective of the agreement has no label.
inline std::string flaw_of_groups_error(const Mishap& mishap, bool is_labelled,
                                        const Failure& failure) {
  const bool is_refused = mishap.kind == Mishap::Kind::kRefused;
  if (failure.code != (is_refused ? Code::kOutOfMemory : Code::kTransport))
    return "a collective fails, and this is reported";
  const Collective& collective = mishap.collective;
  if (is_labelled && failure.collective != name_of(collective.op))
    return "the error does not name the collective";
  if (failure.bucket != collective.bucket) return "the error does not name the bucket";
  if (!is_refused && failure.sequence != mishap.sequence)
    return "the error does not name the collective's number";
  return {};
}

}  // namespace lone_rank
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
