// Capabilities: what a subject (a reducer under test) supports, as a set of named features. The
// generator stays within the set. A replayed case that needs more is refused, and the error names
// what is missing. Plain values; threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "properties/case/case.h"

namespace lockstep::properties {

enum class Capability : std::uint8_t {
  kDynamic,           // detection of unused parameters (mode dynamic)
  kNoSync,            // accumulation without communication
  kNoGrad,            // forwards without gradients, also on single ranks
  kCheckpoint,        // nested backward
  kSeveralForwards,   // several forwards before a backward (dropped ones do not count)
  kSeveralBackwards,  // several backward calls of one step
  kDiscard,           // forwards whose outputs are dropped
  kKeepOutputs,       // outputs that outlive the backward, and check_complete()
  kShared,            // one tensor under several names
  kFrozen,            // parameters that need no gradient
  kFloat64,
  kFloat16,
  kBFloat16,
  kStrides,   // parameters that are not row-major; gradients in other strides, or with gaps
  kZeroSize,  // parameters without elements
  kTwoDevices,
  kBcube,          // the order of additions of Gloo's bcube all-reduce
  kSpecial,        // NaN, infinities, subnormals, -0
  kErrors,         // programs that end in an error of a rank's own (P5, P6, P7)
  kRecovery,       // reset after an error, and training with the survivors
  kStatic,         // the same graph in every synced pass, several hooks per parameter (mode static)
  kViews,          // gradients that are views of their buckets
  kRankOrder,      // sums in the order of the ranks
  kRebuild,        // buckets that follow the order in which gradients become ready
  kHooks,          // communication hooks: the built-in ones and one of a user
  kManualSync,     // sync_gradients(outputs) instead of synced forwards
  kPinned,         // a layout that the caller gives
  kAfterBackward,  // buckets that are reduced after backward has ended
  kState,          // broadcast of the values of parameters and buffers
  kIgnored,        // parameters that the reducer ignores
  kJoin,           // ranks that run out of inputs before others
  kSparse,         // parameters with sparse gradients
  kRequiresGrad,   // gradients that require a gradient themselves, which must be refused (P16)
  kComplex64,      // pairs of 32-bit floats
  kVerify,         // payloads are verified on arrival
  kReplicas,       // several copies of the model in one process
  kReducers,       // several reducers of one model, at once or one after another
  kTwoGroups,      // groups of ranks that train separately at the same time
  kGpu,            // parameters on a GPU
  kThreeLimits,    // another limit for the third bucket and those behind it
  kSetGradients,   // gradients that are replaced, in any strides, or swapped
  kConstants,      // outputs without a graph
  kHoldOutputs,    // outputs that outlive the next step
  kHookResults,    // a hook of a user that returns something else than the average
  kHookCalls,      // a hook of a user with late futures, a backward, or an error code of its own
  kRecompute,      // a checkpoint around the whole model, or two in one backward
  kMisfits,        // a construction or a reset that all ranks must refuse, and a second attempt
};
constexpr int kCapabilities = 47;
const char* name_of(Capability capability);
const char* meaning_of(Capability capability);

class Capabilities {
 public:
  constexpr Capabilities() = default;
  static constexpr Capabilities all() {
    return Capabilities((std::uint64_t{1} << kCapabilities) - 1);
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

// Returns the capabilities that the case needs. For kErrors it asks the model whether the program
// ends in an error.
Capabilities needed(const Case& value);

// Returns what the case needs and the subject lacks. It is empty if the case can run.
Capabilities missing(const Case& value, Capabilities capabilities);

// Returns one line for a person, or nothing if nothing is missing: "the case needs dynamic (unused
// detection), which the subject 'x' does not support".
std::string missing_message(const Case& value, Capabilities capabilities, std::string_view subject);

}  // namespace lockstep::properties
