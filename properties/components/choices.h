// Choices: the numbers from which a component fuzzer makes its situation. They are a record: chance
// draws them the first time, and `made()` lists them; later runs take them from such a list, which
// a search can make smaller. Whatever a list lacks is 0, so a situation is simpler when its list is
// shorter, and when its numbers are smaller: 0 has to stand for the simplest of what there is to
// choose from.
//
// Threads: one at a time. A copy goes on from the same number by itself, as ranks do that draw
// alike.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "properties/generate/random.h"

namespace lockstep::components {

// What a process shares with the one that has started it, so that a crash does not take it along.
struct LiveChoices {
  static constexpr std::uint32_t kMost = 1u << 16u;
  std::atomic<std::uint64_t> index{0};  // of the situation
  std::uint32_t count = 0;
  std::uint32_t numbers[kMost] = {};
};

class Choices {
 public:
  // Draws situation number `index` of the seed.
  Choices(std::uint64_t seed, std::uint64_t index, std::string_view component)
      : chance_(std::in_place, seed, index, component) {}
  // Takes these numbers, and then zeros.
  explicit Choices(std::vector<std::uint32_t> numbers) : given_(std::move(numbers)) {}

  // Returns a number from 0 to limit - 1, or 0 if the limit is 0.
  std::uint32_t below(std::uint32_t limit) {
    if (limit <= 1) return 0;
    return add(chance_ ? chance_->below(limit) : std::min(next(), limit - 1));
  }
  std::uint32_t between(std::uint32_t low, std::uint32_t high) {  // both ends are included
    return low + below(high - low + 1);
  }
  bool percent(std::uint32_t chance) {
    return add(chance_ ? std::uint32_t{chance_->percent(chance)} : next()) != 0;
  }
  std::uint32_t word() { return add(chance_ ? chance_->word() : next()); }

  const std::vector<std::uint32_t>& made() const { return made_; }

  // Copies all further numbers there.
  void share(LiveChoices& live) { live_ = &live; }

 private:
  std::uint32_t next() { return made_.size() < given_.size() ? given_[made_.size()] : 0; }
  std::uint32_t add(std::uint32_t number) {
    made_.push_back(number);
    if (live_ != nullptr && made_.size() <= LiveChoices::kMost) {
      live_->numbers[made_.size() - 1] = number;
      live_->count = static_cast<std::uint32_t>(made_.size());
    }
    return number;
  }

  std::optional<properties::Random> chance_;  // none if the numbers are given
  std::vector<std::uint32_t> given_;
  std::vector<std::uint32_t> made_;
  LiveChoices* live_ = nullptr;
};

}  // namespace lockstep::components
