// Ruling: what one rule of an oracle says of what it saw. Plain data; any thread.
#pragma once

#include <optional>
#include <utility>

#include "properties/oracle/unspecified.h"
#include "properties/oracle/verdict.h"

namespace lockstep::properties {

// A verdict, or that the matter is unspecified, and why.
class Ruling {
 public:
  Ruling() = default;                                        // right
  Ruling(Verdict verdict) : verdict_(std::move(verdict)) {}  // NOLINT
  Ruling(Unspecified reason) : reason_(reason) {}            // NOLINT

  bool is_wrong() const { return !verdict_.ok(); }
  // Counts the reason, if there is one. Returns the verdict, which is ok for what is unspecified.
  Verdict settle(UnspecifiedCounts& counts) && {
    if (reason_) counts.note(*reason_);
    return std::move(verdict_);
  }

 private:
  Verdict verdict_;
  std::optional<Unspecified> reason_;
};

}  // namespace lockstep::properties
