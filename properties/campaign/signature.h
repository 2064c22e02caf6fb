// Signature: what two failures of one cause have in common, so that hundreds of failing cases
// become a few groups. It is taken from a failing case after shrinking: what is left of it could
// not be taken away.
//
// Two causes can have one signature, and one cause several. The first is rarer the more a signature
// says, the second the less: it leaves out numbers that vary between small cases (which parameter,
// which rank, how many steps), and keeps which features are needed at all.
//
// Pure functions.
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <vector>

#include "properties/case/case.h"
#include "properties/oracle/verdict.h"

namespace lockstep::properties {

struct Signature {
  std::string subject;  // with the one beside it
  int exit_code = 0;
  std::string oracle;
  std::vector<std::string> clauses;  // of the contract, of all that the case still has
  std::vector<std::string> shape;    // of the program: kinds of passes and nodes, and options
  std::vector<std::string> faults;   // kinds that are planned, or, not made small, that fired
  std::string waits;                 // the wait-for graph of a deadlock, without numbers
  bool is_small = false;             // whether it was taken from a case that was made small

  auto operator<=>(const Signature& other) const = default;
};

// `small` is the case after shrinking; without one, clauses and shape remain empty. `fired` has the
// kinds of faults that fired.
Signature signature_of(const std::string& subject, const Verdict& verdict,
                       const std::optional<Case>& small, const std::vector<std::string>& fired);

// Whether failures with this signature may have the cause of those with `other`: they end alike,
// and need all that the others need, and more. Shrinking ends at a case that no single change makes
// smaller, and a smaller one may be several changes away.
bool needs_more_than(const Signature& signature, const Signature& other);

// Returns a few lines, each with its end.
std::string to_string(const Signature& signature);
// A short name for files: eight hexadecimal digits, the same in every build.
std::string id_of(const Signature& signature);

// The wait-for graph that a verdict has in its message, without numbers; empty if it has none.
std::string shape_of_waits(const std::string& message);

}  // namespace lockstep::properties
