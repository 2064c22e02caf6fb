#include "properties/oracle/unspecified.h"

namespace lockstep::properties {

const char* name_of(Unspecified reason) {
  switch (reason) {
    case Unspecified::kAheadOfRecovery: return "a rank that had exited before the others recovered";
    case Unspecified::kLastStepOfExited: return "the last step of a rank that exited";
    case Unspecified::kOutcomeByTime: return "success or a peer's error, by time";
    case Unspecified::kPeerLeft: return "a peer that left";
    case Unspecified::kOtherReducer: return "a failure of another reducer";
    case Unspecified::kSharedGroup: return "a mismatch on a shared group";
    case Unspecified::kPoisonOfOther: return "the state of the reducer beside a failed one";
    case Unspecified::kLayout: return "an unreported layout";
    case Unspecified::kNamelessPeer: return "a lost peer without a name";
    case Unspecified::kLocalBackward: return "a local backward";
    case Unspecified::kAttached: return "what a rank saw itself";
    case Unspecified::kSeveralFaults: return "several faults";
    case Unspecified::kFaultsAndErrors: return "a fault in a program that fails";
    case Unspecified::kSeveralReducers: return "several reducers";
    case Unspecified::kCycle: return "a cycle of waits";
    case Unspecified::kEndsOfLink: return "the ends of a broken link";
    case Unspecified::kDoneOrDead: return "done or dead";
    case Unspecified::kNobodySuspected: return "nobody suspected";
    case Unspecified::kOtherGroup: return "a closed group of another reducer";
    case Unspecified::kPassOfNode: return "the pass in which a thrown node is noticed";
    case Unspecified::kCulpritOfJoin: return "the culprit of end_join";
    case Unspecified::kDetails: return "details of an error";
    case Unspecified::kCode: return "the code of a fault's error";
    case Unspecified::kBits: return "bits that time decides";
    case Unspecified::kCollectives: return "collectives of a step cut short";
    case Unspecified::kConcurrentHooks: return "hooks that run at once";
    case Unspecified::kUnlaunchedBucket: return "a bucket without a hook that completes it";
    case Unspecified::kNoCollective: return "a communication hook without a collective";
    case Unspecified::kStore: return "a store that failed";
    case Unspecified::kFlightRecord: return "flight records";
    case Unspecified::kSwitch: return "what follows an error in two runs";
  }
  return "unknown";
}

void UnspecifiedCounts::operator+=(const UnspecifiedCounts& other) {
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] += other.counts[i];
  errors += other.errors;
}

}  // namespace lockstep::properties
