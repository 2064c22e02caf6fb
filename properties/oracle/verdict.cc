#include "properties/oracle/verdict.h"

#include <array>
#include <string_view>

namespace lockstep::properties {

const char* name_of(Failing failing) {
  switch (failing) {
    case Failing::kNothing: return "ok";
    case Failing::kUsage: return "usage";
    case Failing::kInconclusive: return "inconclusive";
    case Failing::kWrongBits: return "wrong bits";
    case Failing::kDeadlock: return "deadlock";
    case Failing::kLivelock: return "livelock";
    case Failing::kCrash: return "crash";
    case Failing::kNotDeterministic: return "not deterministic";
    case Failing::kLeak: return "leak";
    case Failing::kWrongError: return "wrong or missing error";
    case Failing::kSubjectsDiffer: return "subjects differ";
    case Failing::kRace: return "race";
    case Failing::kUnproven: return "proves nothing";
  }
  return "unknown";
}

namespace {

struct Title {
  std::string_view oracle;
  const char* text;
};
constexpr std::array kTitles = {
    Title{"equal", "ranks end with different gradients"},
    Title{"definedness", "a gradient is missing, or one too many"},
    Title{"untouched", "a gradient that nobody used was touched"},
    Title{"view", "a gradient is not the view of its bucket"},
    Title{"layout", "wrong layout of buckets"},
    Title{"state", "wrong values of parameters or buffers"},
    Title{"trace", "wrong collectives"},
    Title{"padding", "padding that is not zero"},
    Title{"overlap", "a bucket is launched late"},
    Title{"poison", "wrong state after an error"},
    Title{"schedule", "collectives before the backward has ended"},
    Title{"construction", "the reducer cannot be constructed"},
    Title{"reuse", "the reducer cannot be reset"},
    Title{"text", "wrong text of an error"},
};

}  // namespace

std::string title_of(const Verdict& verdict) {
  if (verdict.failing == Failing::kWrongError && verdict.oracle == "error")
    return verdict.might_succeed ? "an error without a reason" : name_of(verdict.failing);
  for (const Title& each : kTitles)
    if (each.oracle == verdict.oracle) return each.text;
  if (verdict.oracle.starts_with("same ")) return "other results " + verdict.oracle.substr(5);
  return name_of(verdict.failing);
}

}  // namespace lockstep::properties
