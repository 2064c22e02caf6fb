// Unspecified: why an oracle cannot say whether something that it saw is right. The contract leaves
// it open, or what is known of the run does not tell. An oracle that accepts something for such a
// reason counts it, so that every run of the fuzzer says how much it has not judged.
//
// Plain data; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace lockstep::properties {

enum class Unspecified : std::uint8_t {
  kAheadOfRecovery,   // what a rank did that had exited before the others recovered
  kLastStepOfExited,  // what the last step of a rank returned that had exited
  kOutcomeByTime,     // time decides whether this rank's step ends well or in a peer's error
  kPeerLeft,          // a rank may notice that a peer left before it receives the peer's error
  kOtherReducer,      // the pass of another reducer of the program failed beside this one
  kSharedGroup,       // two reducers on one group may end in a mismatch
  kPoisonOfOther,     // whether a reducer beside the one that failed refuses work
  kLayout,            // no rank reported the order that the rebuilt buckets follow
  kNamelessPeer,      // NCCL does not say which peer it has lost
  kLocalBackward,     // the engine alone runs a local backward, and knows no rank and no pass
  kAttached,          // the subject's errors cannot say what the rank saw itself
  kSeveralFaults,     // which of several faults a rank had to name
  kFaultsAndErrors,   // whom a fault made this rank suspect, where the program fails by itself
  kSeveralReducers,   // whom a rank suspects in the group of one of several reducers
  kCycle,             // a message was lost, and all ranks wait for each other
  kEndsOfLink,        // which link broke, or which of two frames was found, is not known
  kDoneOrDead,        // a rank that is done may look like one that died
  kNobodySuspected,   // an error suspects no rank
  kOtherGroup,        // the group of another reducer closed, and no cause reached this one
  kPassOfNode,        // in which pass a rank noticed that a node had thrown
  kCulpritOfJoin,     // whom end_join() had to name
  kDetails,           // the words of an error, which collective failed, whether that is definite
  kCode,              // whether a fault shows as a lost peer, a timeout, or a broken transport
  kBits,              // the bits of a gradient that time decides
  kCollectives,       // the collectives of a step that did not reach all of them
  kConcurrentHooks,   // when a bucket had to be launched, where hooks run at once
  kUnlaunchedBucket,  // when a bucket had to be launched that a hook did not complete
  kNoCollective,      // when a bucket had to be launched whose hook starts no collective
  kStore,             // what a rank had to name whose store failed, or that of the cause
  kFlightRecord,      // what a flight record or a diagnosis had to say: joins, several causes
  kSwitch,            // what follows an error in two runs, of which one has an option switched
};
constexpr std::size_t kUnspecifiedReasons = 31;

const char* name_of(Unspecified reason);  // words for a summary, as "several faults"

// How often each reason occurred.
struct UnspecifiedCounts {
  std::array<std::uint32_t, kUnspecifiedReasons> counts{};
  // The errors of ranks that were judged.
  std::uint32_t errors = 0;

  void note(Unspecified reason) { ++counts[static_cast<std::size_t>(reason)]; }
  std::uint32_t of(Unspecified reason) const { return counts[static_cast<std::size_t>(reason)]; }
  void operator+=(const UnspecifiedCounts& other);
  bool operator==(const UnspecifiedCounts& other) const = default;
};

}  // namespace lockstep::properties
