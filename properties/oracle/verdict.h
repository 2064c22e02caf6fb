// Verdict: the oracles' judgement of one observation. The exit codes are part of the program's
// interface.
#pragma once

#include <cstdint>
#include <string>

#include "properties/oracle/unspecified.h"

namespace lockstep::properties {

enum class Failing : std::uint8_t {
  kNothing = 0,
  kUsage = 1,
  kInconclusive = 2,
  kWrongBits = 65,
  kDeadlock = 66,
  kLivelock = 67,
  kCrash = 68,
  kNotDeterministic = 69,
  kLeak = 70,
  kWrongError = 71,  // a wrong or a missing error
  // Exit code 72: see cli/commands.h.
  kSubjectsDiffer = 73,  // two subjects differ on one case (agreement.h)
  kRace = 74,      // a race on the memory of a GPU, mutexes locked in two orders, or misuse of NCCL
  kUnproven = 75,  // NCCL did not run as it was pinned (nccl lane)
};
const char* name_of(Failing failing);

struct Verdict;
// What failed, in a few words that say more than the kind: "wrong collectives", where that is
// "wrong bits".
std::string title_of(const Verdict& verdict);

struct Verdict {
  Failing failing = Failing::kNothing;
  // One of "bits", "equal", "definedness", "untouched", "trace", "order", "progress", "error",
  // "reuse", ...
  std::string oracle;
  // Several lines for a person: the first wrong element, or the wait-for graph. If the verdict is
  // ok: what could not be judged.
  std::string message;
  UnspecifiedCounts unspecified = {};  // if the verdict is ok: what the oracles could not judge
  // Of an error that a rank raised: whether the rank might have ended the step without one.
  bool might_succeed = false;
  bool ok() const { return failing == Failing::kNothing; }
  // Whether both are one failure, as far as a person or the shrinker can tell: an error where none
  // was due is another failure than a wrong error where one was due.
  bool same_failure(const Verdict& other) const {
    return failing == other.failing && oracle == other.oracle &&
           might_succeed == other.might_succeed;
  }
};

}  // namespace lockstep::properties
