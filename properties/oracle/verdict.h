// Verdict: what the oracles say of one observation. Exit codes are part of the program's interface.
#pragma once

#include <cstdint>
#include <string>

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
  kWrongError = 71,  // wrong or missing error
  // 72: see cli/commands.h
  kSubjectsDiffer = 73,  // two subjects on one case (agreement.h)
  kRace = 74,            // on the memory of a GPU
  kUnproven = 75,        // NCCL did not run as it was pinned (nccl lane)
};
const char* name_of(Failing failing);

struct Verdict {
  Failing failing = Failing::kNothing;
  std::string oracle;  // "bits", "equal", "definedness", "untouched", "trace", "order", "progress",
                       // "error", "reuse", ...
  std::string message;  // several lines for a person: the first wrong element, or the wait-for
                        // graph; of one that is ok: what could not be judged
  bool ok() const { return failing == Failing::kNothing; }
  bool same_failure(const Verdict& other) const {
    return failing == other.failing && oracle == other.oracle;
  }
};

}  // namespace lockstep::properties
