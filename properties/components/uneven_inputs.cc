// This component checks what ranks with uneven inputs decide from what all of them announce
// (reducer/uneven_inputs.h). Chance makes the announcements (S2). The ranks of a program would
// all reach the same state, as they train alike.
#include "reducer/uneven_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "properties/components/checks.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

using JoinEvent = UnevenInputs::Event;

constexpr std::uint32_t kMostRounds = 4;
constexpr std::uint32_t kTrainEvents = 3;

class JoinStates {
 public:
  explicit JoinStates(Choices& choices) : chance_(choices) {
    options_.resize(1 + chance_.below(4));
    ranks_ = std::vector<UnevenInputs>(options_.size());
    const bool throws = chance_.percent(33);
    const bool by_active = chance_.percent(50);
    for (JoinOptions& options : options_) {
      options.throw_on_early_termination = throws;
      options.divide_by_active = by_active;
    }
    if (!chance_.percent(25)) return;
    JoinOptions& other = options_[below_size()];
    bool& option =
        chance_.below(2) == 0 ? other.throw_on_early_termination : other.divide_by_active;
    option = !option;
  }

  // Returns what is wrong with the ranks' decisions, or an empty text.
  std::string judge() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].is_joining()) return "it joins before begin_join";
      if (!begin(r).ok()) return "begin_join fails";
      if (begin(r).code() != Code::kInvalidArgument) return "a second begin_join is not refused";
      if (!ranks_[r].is_joining()) return "it does not join after begin_join";
      if (ranks_[r].lowest_that_trains() != 0) return "it takes no state of rank 0 at first";
    }
    const std::uint32_t rounds = chance_.between(1, kMostRounds);
    for (std::uint32_t round = 0; round < rounds; ++round)
      if (std::string flaw = judge_round(); !flaw.empty()) return flaw + describe();
    for (UnevenInputs& rank : ranks_) {
      rank.end();
      if (rank.is_joining() || !rank.all_train()) return "a join that has ended goes on";
    }
    return {};
  }

 private:
  struct Expected {
    Code code = Code::kOk;
    JoinEvent event = JoinEvent::kNone;
    std::vector<std::size_t> numbers;  // that the text of a mismatch has
  };

  std::size_t below_size() { return chance_.below(static_cast<std::uint32_t>(options_.size())); }
  Status begin(std::size_t rank) {
    return ranks_[rank].begin(options_[rank], static_cast<int>(ranks_.size()));
  }
  std::size_t count(JoinEvent event) const {
    return static_cast<std::size_t>(std::count(events_.begin(), events_.end(), event));
  }
  template <class Is>
  std::size_t count_options(const Is& is) const {
    return static_cast<std::size_t>(std::count_if(options_.begin(), options_.end(), is));
  }

  // Most ranks come to one point, and some are out of inputs.
  void draw() {
    const auto usual = static_cast<JoinEvent>(chance_.below(kTrainEvents));
    events_.assign(ranks_.size(), usual);
    for (JoinEvent& event : events_)
      if (chance_.percent(33)) event = JoinEvent::kNone;
    if (chance_.percent(33))
      events_[below_size()] = static_cast<JoinEvent>(chance_.below(kTrainEvents));
  }

  Expected expected() const {
    const std::size_t size = ranks_.size();
    const std::size_t throwing =
        count_options([](const auto& each) { return each.throw_on_early_termination; });
    const std::size_t dividing =
        count_options([](const auto& each) { return each.divide_by_active; });
    if (throwing % size != 0 || dividing % size != 0)
      return {Code::kMismatch, JoinEvent::kNone, {size, throwing, dividing}};
    const std::size_t active = size - count(JoinEvent::kNone);
    if (active == 0) return {};
    const auto first = std::find_if(events_.begin(), events_.end(),
                                    [](JoinEvent event) { return event != JoinEvent::kNone; });
    if (count(*first) != active)
      return {Code::kMismatch,
              JoinEvent::kNone,
              {active, count(JoinEvent::kBuffers), count(JoinEvent::kRebuild),
               count(JoinEvent::kPass)}};
    if (active < size && throwing == size) return {Code::kUnevenInputs, JoinEvent::kNone, {}};
    return {Code::kOk, *first, {}};
  }

  std::string judge_round() {
    draw();
    const auto size = static_cast<int>(ranks_.size());
    std::vector<std::int32_t> sum;
    std::vector<Collective> announced;
    for (int r = 0; r < size; ++r) {
      const auto rank = static_cast<std::size_t>(r);
      const Collective& each =
          announced.emplace_back(ranks_[rank].announce(events_[rank], r, size));
      if (each.op != Op::kAllReduceSum || each.dtype != DType::kInt32 ||
          (r > 0 && each.count != announced[0].count))
        return "its announcement is no sum of as many integers as those of the others";
      std::vector<std::int32_t> numbers(each.count);
      std::memcpy(numbers.data(), each.data, each.count * sizeof(std::int32_t));
      sum.resize(each.count);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += numbers[i];
    }
    const Expected expected = this->expected();
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      std::memcpy(announced[r].data, sum.data(), sum.size() * sizeof(std::int32_t));
      const Result<JoinEvent> agreed = ranks_[r].agree();
      std::string flaw = agreed ? flaw_of(*agreed, expected) : flaw_of(agreed.error(), expected);
      if (flaw.empty()) flaw = flaw_of_ranks(ranks_[r], expected);
      if (!flaw.empty()) return "rank " + std::to_string(r) + " " + flaw;
    }
    return {};
  }

  static std::string flaw_of(JoinEvent event, const Expected& expected) {
    if (expected.code != Code::kOk)
      return std::string("goes on, and had to fail with ") + name_of(expected.code);
    return event == expected.event ? "" : "goes on with another event";
  }

  // All ranks raise the same, for certain; nobody can say which of them is wrong in a mismatch.
  std::string flaw_of(const Status& status, const Expected& expected) const {
    const Failure& failure = status.failure();
    if (failure.code != expected.code) return "fails so: " + status.to_string();
    if (!failure.definite) return "is in doubt: " + status.to_string();
    if (failure.code == Code::kUnevenInputs) {
      const auto out = std::find(events_.begin(), events_.end(), JoinEvent::kNone);
      return failure.rank == out - events_.begin()
                 ? ""
                 : "does not name the lowest rank without inputs: " + status.to_string();
    }
    if (failure.rank != kNone) return "names a rank in a mismatch: " + status.to_string();
    std::size_t at = 0;
    for (const std::size_t number : expected.numbers) {
      at = failure.detail.find(std::to_string(number), at);
      if (at == std::string::npos) return "counts other ranks: " + status.to_string();
      ++at;
    }
    return {};
  }

  // After an event on which all agree, the rank knows who takes part in the mean (S2).
  std::string flaw_of_ranks(const UnevenInputs& rank, const Expected& expected) const {
    if (expected.code != Code::kOk || expected.event == JoinEvent::kNone) return {};
    const std::size_t out = count(JoinEvent::kNone);
    const auto lowest = std::find_if(events_.begin(), events_.end(),
                                     [](JoinEvent event) { return event != JoinEvent::kNone; });
    const auto size = ranks_.size();
    const auto divisor = options_.front().divide_by_active ? size - out : size;
    if (rank.all_train() != (out == 0)) return "does not know whether all ranks train";
    if (rank.lowest_that_trains() != lowest - events_.begin())
      return "does not know the lowest rank that trains";
    return rank.scale().divisor() == static_cast<int>(divisor) ? "" : "divides by another number";
  }

  std::string describe() const {
    std::string text = "; the ranks announce";
    for (std::size_t r = 0; r < events_.size(); ++r)
      text += fmt::format(" {}{}{}", static_cast<int>(events_[r]),
                          options_[r].throw_on_early_termination ? "t" : "",
                          options_[r].divide_by_active ? "a" : "");
    return text;
  }

  Choices& chance_;
  std::vector<JoinOptions> options_;  // by rank, as are those below
  std::vector<UnevenInputs> ranks_;
  std::vector<JoinEvent> events_;
};

}  // namespace

std::string check_uneven_inputs(Choices& choices) { return JoinStates(choices).judge(); }

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
