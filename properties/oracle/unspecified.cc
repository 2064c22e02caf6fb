#include "properties/oracle/unspecified.h"

#include <utility>

namespace lockstep::properties {

constexpr std::pair<Unspecified, const char*> kReasonWords[] = {
    {Unspecified::kAheadOfRecovery, "a rank that had exited before the others recovered"},
    {Unspecified::kLastStepOfExited, "the last step of a rank that exited"},
    {Unspecified::kOutcomeByTime, "success or a peer's error, by time"},
    {Unspecified::kPeerLeft, "a peer that left"},
    {Unspecified::kOtherReducer, "a failure of another reducer"},
    {Unspecified::kSharedGroup, "a mismatch on a shared group"},
    {Unspecified::kPoisonOfOther, "the state of the reducer beside a failed one"},
    {Unspecified::kLayout, "an unreported layout"},
    {Unspecified::kNamelessPeer, "a lost peer without a name"},
    {Unspecified::kLocalBackward, "a local backward"},
    {Unspecified::kAttached, "what a rank saw itself"},
    {Unspecified::kSeveralFaults, "several faults"},
    {Unspecified::kFaultsAndErrors, "a fault in a program that fails"},
    {Unspecified::kSeveralReducers, "several reducers"},
    {Unspecified::kCycle, "a cycle of waits"},
    {Unspecified::kEndsOfLink, "the ends of a broken link"},
    {Unspecified::kDoneOrDead, "done or dead"},
    {Unspecified::kNobodySuspected, "nobody suspected"},
    {Unspecified::kOtherGroup, "a closed group of another reducer"},
    {Unspecified::kPassOfNode, "the pass in which a thrown node is noticed"},
    {Unspecified::kCulpritOfJoin, "the culprit of end_join"},
    {Unspecified::kDetails, "details of an error"},
    {Unspecified::kCode, "the code of a fault's error"},
    {Unspecified::kBits, "bits that time decides"},
    {Unspecified::kCollectives, "collectives of a step cut short"},
    {Unspecified::kConcurrentHooks, "hooks that run at once"},
    {Unspecified::kUnlaunchedBucket, "a bucket without a hook that completes it"},
    {Unspecified::kNoCollective, "a communication hook without a collective"},
    {Unspecified::kStore, "a store that failed"},
    {Unspecified::kFlightRecord, "flight records"},
    {Unspecified::kSwitch, "what follows an error in two runs"},
};

const char* name_of(Unspecified reason) {
  for (const auto& [each, words] : kReasonWords)
    if (each == reason) return words;
  return "unknown";
}

void UnspecifiedCounts::operator+=(const UnspecifiedCounts& other) {
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] += other.counts[i];
  errors += other.errors;
}

}  // namespace lockstep::properties
