#include "properties/oracle/verdict.h"

namespace lockstep::properties {

const char* name_of(Failing failing) {
  switch (failing) {
    case Failing::kNothing:
      return "ok";
    case Failing::kUsage:
      return "usage";
    case Failing::kInconclusive:
      return "inconclusive";
    case Failing::kWrongBits:
      return "wrong bits";
    case Failing::kDeadlock:
      return "deadlock";
    case Failing::kLivelock:
      return "livelock";
    case Failing::kCrash:
      return "crash";
    case Failing::kNotDeterministic:
      return "not deterministic";
    case Failing::kLeak:
      return "leak";
    case Failing::kWrongError:
      return "wrong or missing error";
    case Failing::kSubjectsDiffer:
      return "subjects differ";
    case Failing::kRace:
      return "race";
    case Failing::kUnproven:
      return "proves nothing";
  }
  return "unknown";
}

}  // namespace lockstep::properties
