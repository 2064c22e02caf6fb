#include "properties/shrink/test_arbitrary.h"

#include <ostream>

#include "properties/case/case_json.h"
#include "properties/case/describe.h"
#include "properties/shrink/shrink.h"

namespace lockstep::properties {
namespace {

// Adapts Candidates to RapidCheck.
class CandidateSequence {
 public:
  explicit CandidateSequence(const Case& value) : candidates_(value) {}
  rc::Maybe<Case> operator()() {
    if (std::optional<Case> next = candidates_.next()) return std::move(*next);
    return rc::Nothing;
  }

 private:
  Candidates candidates_;
};

rc::Seq<Case> shrinks(const Case& value) { return rc::makeSeq<CandidateSequence>(value); }

}  // namespace

rc::Gen<Case> cases(const GenerateOptions& options) {
  return rc::Gen<Case>([options](const rc::Random& random, int) {
    rc::Random copy = random;
    const std::uint64_t seed = copy.next();
    return rc::shrinkable::shrinkRecur(generate(seed, 0, options), &shrinks);
  });
}

void showValue(const Case& value, std::ostream& out) {
  out << "\n" << describe(value) << to_json(value);
}

}  // namespace lockstep::properties
