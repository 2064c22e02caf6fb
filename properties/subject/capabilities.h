// Capabilities: what a subject (a reducer under test) supports, as a set of named features. The
// generator stays within the set; a replayed case that needs more is refused with the names of what
// is missing. Plain values; threads: any.
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
  kNoGrad,            // forwards without gradients, also on some ranks alone
  kCheckpoint,        // nested backward
  kSeveralForwards,   // several forwards before a backward (dropped ones not counted)
  kSeveralBackwards,  // several backward calls of one step
  kDiscard,           // forwards whose outputs are dropped
  kKeepOutputs,       // outputs that outlive the backward, and check_complete()
  kShared,            // one tensor under several names
  kFrozen,            // parameters that need no gradient
  kFloat64,
  kFloat16,
  kBFloat16,
  kStrides,   // column-major parameters, and gradients in other strides than the parameter's
  kZeroSize,  // parameters without elements
  kTwoDevices,
  kBcube,          // the order of additions of Gloo's bcube all-reduce
  kSpecial,        // NaN, infinities, subnormals, -0
  kErrors,         // programs that end in an error of their own (P5, P6, P7)
  kRecovery,       // reset after an error, and going on with the survivors
  kStatic,         // the same graph in every synced pass, several hooks a parameter (mode static)
  kViews,          // gradients that are views of their buckets
  kRankOrder,      // sums in the order of the ranks
  kRebuild,        // buckets that follow the order in which gradients get ready
  kHooks,          // communication hooks: the built-in ones and one of the user's
  kManualSync,     // sync_gradients(outputs) instead of synced forwards
  kPinned,         // a layout that is given
  kAfterBackward,  // buckets that are reduced when backward has ended
  kState,          // values of parameters and buffers that are broadcast
  kIgnored,        // parameters that are left alone
  kJoin,           // ranks that run out of inputs before others
  kSparse,         // parameters with sparse gradients
  kRequiresGrad,   // gradients that require a gradient themselves, which must be refused (P16)
  kComplex64,      // pairs of 32-bit floats
  kVerify,         // what travels is checked on arrival
  kReplicas,       // several copies of the model in one process
  kReducers,       // several reducers of one model, at once or one after the other
  kTwoGroups,      // groups of ranks that train apart at the same time
  kGpu,            // parameters on a GPU
  kThreeLimits,    // another limit for the third bucket, and those behind it
  kSetGradients,   // gradients that are replaced, in any strides, or swapped
  kConstants,      // outputs without a graph
  kHoldOutputs,    // outputs that outlive the next step
};
constexpr int kCapabilities = 43;
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

  // For the C interface of subjects from outside. Unknown bits are dropped.
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

// What the case needs. For kErrors the model is asked whether the program ends in an error.
Capabilities needed(const Case& value);

// What the case needs and the subject lacks; empty when it can run.
Capabilities missing(const Case& value, Capabilities capabilities);

// One line for a person, or empty: "the case needs dynamic (unused detection), which the subject
// 'x' does not support".
std::string missing_message(const Case& value, Capabilities capabilities, std::string_view subject);

}  // namespace lockstep::properties
