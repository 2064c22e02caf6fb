// Expectation: what the contract says must come out of a Program, step by step and rank by rank.
// The model writes it (model.h), oracles compare an observation with it. Plain data; nothing here
// computes.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/program.h"

namespace lockstep::reference {

struct ExpectedGradient {
  // False: the gradient depends on time, and the other members say nothing. Either a peer's hook
  // came twice in this step (P6), and each of its two gradients may have been reduced; or, since
  // the gradient was last zeroed, a nested and an outer call of backward added rounded sums to it
  // at the same time (E).
  bool known = true;
  bool defined = false;
  // Same bits and same storage as before the step's first backward (G5); false if undefined.
  bool untouched = false;
  // The gradient was reduced in this step, and nothing was added to it on this rank afterwards: all
  // ranks of which this is true have the same bits.
  bool reduced = false;
  // With Replicated::views: the gradient lies in its bucket, at the member's offset (B7).
  bool in_bucket = false;
  // The index of the first element in Expectation::bits. There, elements follow in row-major order;
  // behind those of a sparse gradient it says which rows the gradient has (gradient_words).
  // Gradients with the same bits may share them.
  std::uint64_t offset = 0;
};

// The errors that a program itself can lead to, without a fault.
enum class Error : std::uint8_t {
  kNone,
  kIncomplete,         // a pass ends, and parameters are not ready (P5)
  kReadyTwice,         // a parameter gets a second gradient in a pass (P6)
  kSecondBackward,     // a backward of a pass that is complete (P7)
  kUsageChanged,       // static mode: more or fewer hooks than in the first pass (P11)
  kRequiresGrad,       // a gradient that requires a gradient itself (P16)
  kUnevenInputs,       // early termination: some rank has no more inputs (S2)
  kForwardInBackward,  // a forward with gradients inside of a backward of the pass (P1)
  kAbsent,             // a rank takes no part in the pass, and the others time out (P8)
  kForeign,            // one that the contract does not have; the model never expects it
};

// ExpectedRankStep::error_call: it is a forward that raises.
constexpr std::uint32_t kForwardCall = ~std::uint32_t{0};

enum class Outcome : std::uint8_t {
  kSuccess,  // every call of the step succeeds
  // A call of this rank raises `error`; it may report a peer's cause instead when one came first.
  kOwnError,
  // A call of this rank fails because another rank had an own error, and says so.
  kPeerError,
  kSuccessOrPeerError,  // which of the two depends on time
};

struct ExpectedRankStep {
  bool present = true;  // false: the rank is not among the survivors any more
  Outcome outcome = Outcome::kSuccess;
  Error error = Error::kNone;
  // kOwnError: which backward call, from 0; the number of calls means check_complete(); or
  // kForwardCall.
  std::uint32_t error_call = 0;
  // First owners, ascending. kIncomplete: all that are missing; kUsageChanged: all that
  // were not in use; kReadyTwice, kRequiresGrad: those that can be named.
  std::vector<std::uint32_t> parameters;
  // With kReadyTwice: those that kRequiresGrad can name, if that comes first.
  std::vector<std::uint32_t> requiring;
  // Per parameter of the program, after the step; meaningful on success.
  std::vector<ExpectedGradient> gradients;
  // S3: hash_of_state() of each tensor of state_tensors(); meaningful on success.
  std::vector<std::uint64_t> state;
};

struct ExpectedCollective {
  enum class Op : std::uint8_t {
    kAllReduceBucket,
    kAllReduceUsage,
    kBroadcastOrder,
    kBroadcastBuffers,  // a chunk of them; `count` is in bytes
    kAnnounce,          // S2
    kGatherSparse,      // S1: of a bucket; `count` is in bytes, of one rank
  };
  Op op = Op::kAllReduceBucket;
  std::uint32_t bucket = 0;       // index in launch order; 0 for the usage map
  std::uint64_t count = 0;        // elements, or their parts; padding between members included
  DType dtype = DType::kFloat32;  // of a bucket, on the wire (S4); the usage map is int32
};

struct ExpectedStep {
  // Some rank has an own error: after this step every rank recovers (see model.h).
  bool any_error = false;
  std::vector<ExpectedRankStep> ranks;  // by original rank
  // Of the step if it succeeds everywhere, in order (T2).
  std::vector<ExpectedCollective> collectives;
  bool is_reduced = false;   // it has a synced pass
  std::uint32_t layout = 0;  // of its buckets: 0, or 1 + the index into Expectation::rebuilt
};

struct ExpectedBucket {
  DType dtype = DType::kFloat32;
  std::uint32_t device = 0;
  std::uint64_t count = 0;
  bool sparse = false;  // S1: of one parameter
  // Indices into Program::parameters, first owners of shared tensors.
  std::vector<std::uint32_t> parameters;
  std::vector<std::uint64_t> offsets;  // in elements, one per member
};

struct Expectation {
  std::vector<ExpectedBucket> buckets;  // in launch order, at construction and after a recovery
  std::vector<std::vector<ExpectedBucket>> rebuilt;  // those that followed a ready order
  std::vector<ExpectedStep> steps;
  // S2, with Replicated::join: once all ranks are out of inputs; by original rank.
  std::vector<ExpectedRankStep> ending;
  std::vector<std::uint64_t> bits;  // bit patterns of elements, in the low bytes
  // Several reducers, or groups of ranks: what each reducer comes to in each group, by share_of().
  // What is above is put together from them, but for buckets and collectives, which are those of
  // the first share. Empty: there is one of each.
  std::vector<Expectation> shares;
};

// The share of the expectation that a reducer of a rank has.
inline const Expectation& share_of(const Program& program, const Expectation& expectation,
                                   std::size_t rank, std::uint32_t reducer) {
  if (expectation.shares.empty()) return expectation;
  const std::uint32_t group = group_of(program, static_cast<std::uint32_t>(rank));
  return expectation.shares[group * reducer_count(program) + reducer];
}

// The buckets that `step`, one of the expectation's, ends with.
inline const std::vector<ExpectedBucket>& buckets_of(const Expectation& expectation,
                                                     const ExpectedStep& step) {
  return step.layout == 0 ? expectation.buckets : expectation.rebuilt[step.layout - 1];
}

}  // namespace lockstep::reference
