// Capabilities: what a subject (a reducer under test) supports, as a set of named features. The
// generator stays within the set. A replayed case that needs more is refused, and the error names
// what is missing. Plain values; threads: any.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "properties/case/case.h"

namespace lockstep::properties {

// One row a capability: its enumerator, its name in messages, and its meaning. The interface of
// subjects counts them from the first row, so a new one comes last.
// clang-format off
#define LOCKSTEP_CAPABILITIES(row) \
  row(kDynamic, "dynamic", "unused detection") \
  row(kNoSync, "no_sync", "accumulation without communication") \
  row(kNoGrad, "no_grad", "forwards without gradients") \
  row(kCheckpoint, "checkpoint", "nested backward") \
  row(kSeveralForwards, "several_forwards", "several forwards before a backward") \
  row(kSeveralBackwards, "several_backwards", "several backward calls of one step") \
  row(kDiscard, "discard", "dropped outputs") \
  row(kKeepOutputs, "keep_outputs", "outputs kept past the backward") \
  row(kShared, "shared", "shared parameters") \
  row(kFrozen, "frozen", "frozen parameters") \
  row(kFloat64, "float64", "64-bit floats") \
  row(kFloat16, "float16", "16-bit floats") \
  row(kBFloat16, "bfloat16", "bfloat16") \
  row(kStrides, "strides", \
      "parameters that are not row-major, or gradients in other strides or with gaps") \
  row(kZeroSize, "zero_size", "parameters without elements") \
  row(kTwoDevices, "two_devices", "parameters on two devices") \
  row(kBcube, "bcube", "Gloo's bcube order") \
  row(kSpecial, "special", "NaN, infinities and subnormals") \
  row(kErrors, "errors", "programs that end in an error") \
  row(kRecovery, "recovery", "reset after an error") \
  row(kStatic, "static", "static graphs") \
  row(kViews, "views", "gradients as bucket views") \
  row(kRankOrder, "rank_order", "sums in the order of the ranks") \
  row(kRebuild, "rebuild", "buckets rebuilt in ready order") \
  row(kHooks, "hooks", "communication hooks") \
  row(kManualSync, "manual_sync", "sync_gradients after local forwards") \
  row(kPinned, "pinned", "pinned layouts") \
  row(kAfterBackward, "after_backward", "reduction after backward") \
  row(kState, "state", "buffers and values of parameters") \
  row(kIgnored, "ignored", "ignored parameters") \
  row(kJoin, "join", "uneven inputs") \
  row(kSparse, "sparse", "sparse gradients") \
  row(kRequiresGrad, "requires_grad", "gradients that require a gradient") \
  row(kComplex64, "complex64", "complex numbers") \
  row(kVerify, "verify", "verified payloads (checksums)") \
  row(kReplicas, "replicas", "several replicas in a process") \
  row(kReducers, "reducers", "several reducers of one model") \
  row(kTwoGroups, "two_groups", "groups of ranks that train apart") \
  row(kGpu, "gpu", "parameters on a GPU") \
  row(kThreeLimits, "three_limits", "a list of three bucket limits") \
  row(kSetGradients, "set_gradients", "gradients that are replaced or swapped") \
  row(kConstants, "constants", "outputs without a graph") \
  row(kHoldOutputs, "hold_outputs", "outputs held past the next step") \
  row(kHookResults, "hook_results", "communication hooks that do not average") \
  row(kHookCalls, "hook_calls", \
      "communication hooks with futures, backwards or error codes of their own") \
  row(kRecompute, "recompute", "a checkpoint around the whole model") \
  row(kDisagreements, "disagreements", "a construction or a reset that must be refused") \
  row(kInterleaved, "interleaved", \
      "local forwards in a synced step, or backwards between its forwards") \
  row(kRounding, "rounding", "sums and averages that are rounded") \
  row(kFaults, "faults", "faults") \
  row(kUndefined, "undefined", "uses that get no gradient (None)") \
  row(kBatchedCopy, "batched_grad_copy", "gradients copied to a bucket together") \
  row(kLazyBuckets, "lazy_bucket_allocation", "buckets with memory during a backward alone") \
  row(kSkipsUnused, "skip_all_reduce_unused_params", "buckets left out where all is unused") \
  row(kFinalization, "finalization", "passes that the user ends by hand") \
  row(kUpdatesGroup, "update_process_group", "another process group for the same reducer") \
  row(kBetween, "between", \
      "zero_grad, evaluations, drops or optimizer steps between the calls of a step") \
  row(kLaterBackward, "later_backward", "backwards of outputs of the step before") \
  row(kAbsent, "absent", "ranks that take no part in a pass") \
  row(kRepeatedHooks, "repeated_hooks", "hooks that run again in a pass, all of which count") \
  row(kManyParameters, "many_parameters", "more than 64 parameters")
// clang-format on

#define LOCKSTEP_ENUMERATOR(enumerator, name, meaning) enumerator,
enum class Capability : std::uint8_t { LOCKSTEP_CAPABILITIES(LOCKSTEP_ENUMERATOR) };
#undef LOCKSTEP_ENUMERATOR
#define LOCKSTEP_ONE(enumerator, name, meaning) +1
constexpr int kCapabilities = 0 LOCKSTEP_CAPABILITIES(LOCKSTEP_ONE);
#undef LOCKSTEP_ONE
const char* name_of(Capability capability);

class Capabilities {
 public:
  constexpr Capabilities() = default;
  static constexpr Capabilities all() {
    return Capabilities((std::uint64_t{1} << kCapabilities) - 1);
  }

  static constexpr Capabilities of(std::initializer_list<Capability> list) {
    Capabilities out;
    for (const Capability each : list) out = out.with(each);
    return out;
  }
  // Returns what Lockstep's reducer supports: all but what only other reducers have.
  static constexpr Capabilities lockstep() {
    using enum Capability;
    return all().without(of(
        {kBatchedCopy, kLazyBuckets, kSkipsUnused, kFinalization, kUpdatesGroup, kRepeatedHooks}));
  }

  constexpr bool has(Capability capability) const { return (bits_ & bit(capability)) != 0; }
  constexpr Capabilities with(Capability capability) const {
    return Capabilities(bits_ | bit(capability));
  }
  constexpr Capabilities without(Capability capability) const {
    return Capabilities(bits_ & ~bit(capability));
  }
  constexpr Capabilities without(Capabilities others) const {
    return Capabilities(bits_ & ~others.bits_);
  }
  // Without those of which programs end in errors.
  constexpr Capabilities without_errors() const {
    return without(of({Capability::kErrors, Capability::kRecovery, Capability::kAbsent}));
  }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr bool operator==(const Capabilities& other) const = default;

  // These are for the C interface of subjects. from_bits() drops unknown bits.
  constexpr std::uint64_t bits() const { return bits_; }
  static constexpr Capabilities from_bits(std::uint64_t bits) {
    return Capabilities(bits & all().bits_);
  }

 private:
  constexpr explicit Capabilities(std::uint64_t bits) : bits_(bits) {}
  static constexpr std::uint64_t bit(Capability capability) {
    return std::uint64_t{1} << static_cast<unsigned>(capability);
  }
  std::uint64_t bits_ = 0;
};

std::vector<std::string> names(Capabilities capabilities);
std::vector<std::string> described(Capabilities capabilities);  // "dynamic (unused detection)"

// Returns the capabilities that the case needs. For kErrors it asks the model whether the program
// ends in an error.
Capabilities needed(const Case& value);

// Returns what the case needs and the subject lacks. It is empty if the case can run.
Capabilities missing(const Case& value, Capabilities capabilities);

// Returns one line for a person, or nothing if nothing is missing: "the case needs dynamic (unused
// detection), which the subject 'x' does not support".
std::string missing_message(const Case& value, Capabilities capabilities, std::string_view subject);

}  // namespace lockstep::properties
