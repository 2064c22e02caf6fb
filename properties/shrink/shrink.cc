#include "properties/shrink/shrink.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "properties/shrink/edits.h"

namespace lockstep::properties {
namespace {

constexpr std::uint32_t kSeedStep = 0x9e3779b9;  // the distance between the seeds that are tried

class Shrinker {
 public:
  Shrinker(const Case& value, const std::function<bool(const Case&)>& test,
           const ShrinkOptions& options)
      : test_(test), options_(options), case_(value) {
    normalize(case_);
    size_ = size_of(case_);
    tried_.insert(hash_of(case_));
  }

  ShrinkResult run() {
    bool finished = false;
    while (!finished && !is_over()) {
      const std::uint64_t before = accepted_;
      pass();
      if (accepted_ == before && !is_over()) finished = !replace_random_schedule();
    }
    return {std::move(case_), executions_, accepted_, finished};
  }

 private:
  bool is_over() {
    if (!over_)
      over_ = executions_ >= options_.max_executions || (options_.stop && options_.stop());
    return over_;
  }

  // Tries all edits once. After an accepted edit it continues at the same position, because the
  // edit that moved there has not been tried.
  void pass() {
    std::vector<Edit> edits = edits_of(case_);
    for (std::size_t i = 0; i < edits.size() && !is_over();) {
      const Edit edit = edits[i];
      Case candidate = case_;
      apply(edit, candidate);
      if (!offer(std::move(candidate))) {
        ++i;
        continue;
      }
      edits = edits_of(case_);
      i = static_cast<std::size_t>(std::lower_bound(edits.begin(), edits.end(), edit) -
                                   edits.begin());
    }
  }

  bool needs_more(const Case& candidate) const {
    return options_.within != Capabilities::all() && !missing(candidate, options_.within).empty();
  }

  // Accepts the candidate if it is smaller and fails.
  bool offer(Case candidate) {
    const std::uint32_t seed = candidate.schedule.seed;
    const bool random = candidate.schedule.policy == Schedule::Policy::kRandomWalk ||
                        candidate.schedule.policy == Schedule::Policy::kStayBiased;
    for (std::uint32_t more = 0; more <= (random ? options_.extra_seeds : 0); ++more) {
      candidate.schedule.seed = seed + more * kSeedStep;
      const Size size = size_of(candidate);
      if (!(size < size_) || !tried_.insert(hash_of(candidate)).second) continue;
      if (needs_more(candidate)) return false;  // with any seed
      if (is_over()) return false;
      ++executions_;
      if (!test_(candidate)) continue;
      case_ = std::move(candidate);
      size_ = size;
      ++accepted_;
      return true;
    }
    return false;
  }

  bool replace_random_schedule() {
    if (!options_.record || case_.schedule.policy == Schedule::Policy::kDefault) return false;
    std::optional<std::vector<Schedule::Deviation>> deviations = options_.record(case_);
    if (!deviations) return false;
    Case candidate = case_;
    candidate.schedule.policy = Schedule::Policy::kDefault;
    candidate.schedule.deviations = std::move(*deviations);
    normalize(candidate);
    return offer(std::move(candidate));
  }

  const std::function<bool(const Case&)>& test_;
  const ShrinkOptions& options_;
  Case case_;
  Size size_;
  std::unordered_set<std::uint64_t> tried_;  // hashes; never iterated
  std::uint64_t executions_ = 0;
  std::uint64_t accepted_ = 0;
  bool over_ = false;
};

}  // namespace

Candidates::Candidates(const Case& value) {
  auto normal = std::make_shared<Case>(value);
  normalize(*normal);
  size_ = size_of(*normal);
  edits_ = std::make_shared<const std::vector<Edit>>(edits_of(*normal));
  case_ = std::move(normal);
}

std::optional<Case> Candidates::next() {
  while (position_ < edits_->size()) {
    Case candidate = *case_;
    apply((*edits_)[position_++], candidate);
    if (size_of(candidate) < size_) return candidate;
  }
  return std::nullopt;
}

ShrinkResult shrink(const Case& value, const std::function<bool(const Case&)>& test,
                    const ShrinkOptions& options) {
  return Shrinker(value, test, options).run();
}

}  // namespace lockstep::properties
