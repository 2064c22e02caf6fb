#include "properties/components/search.h"

#include <fmt/format.h>
#include <rapidcheck.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <utility>

#include "properties/process/child.h"

namespace lockstep::components {
namespace {

using properties::Child;
using properties::ChildLine;
using properties::Failing;
using properties::Verdict;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTurn{50};
constexpr std::chrono::seconds kHungAfter{20};
constexpr std::uint64_t kBetweenLooks = 64;  // situations between two looks at the clock

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct Unmap {
  void operator()(LiveChoices* live) const { ::munmap(live, sizeof(LiveChoices)); }
};
using SharedChoices = std::unique_ptr<LiveChoices, Unmap>;

SharedChoices share_choices() {
  void* memory = ::mmap(nullptr, sizeof(LiveChoices), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return SharedChoices(memory == MAP_FAILED ? nullptr : new (memory) LiveChoices);
}

std::vector<std::uint32_t> numbers_of(const LiveChoices& live) {
  return {live.numbers, live.numbers + live.count};
}

std::string encode(const Verdict& verdict) {
  return nlohmann::json{static_cast<int>(verdict.failing), verdict.oracle, verdict.message}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Verdict decode(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text);
  return {static_cast<Failing>(json.at(0).get<int>()), json.at(1), json.at(2)};
}

// What a child says: nothing yet, a verdict, or that all is well.
enum class Heard : std::uint8_t { kNothing, kVerdict, kEnd };

// Takes what the child has to say. `quiet_since` is when it was last seen to go on.
Heard listen(Child& child, Clock::time_point quiet_since, Verdict& verdict) {
  std::string text;
  switch (child.receive(text, kTurn)) {
    case Child::Received::kMessage:
      verdict = decode(text);
      return Heard::kVerdict;
    case Child::Received::kFinished:
      return Heard::kEnd;
    case Child::Received::kLost:
      verdict = {Failing::kCrash, "crash", "its process " + child.how_lost()};
      return Heard::kVerdict;
    case Child::Received::kNothing:
      break;
  }
  if (Clock::now() - quiet_since < kHungAfter) return Heard::kNothing;
  verdict = {Failing::kLivelock, "progress",
             fmt::format("it goes on for more than {} s", kHungAfter.count())};
  return Heard::kVerdict;
}

void judge_many(const Component& component, const SearchOptions& options, LiveChoices& live,
                ChildLine& line) {
  const Clock::time_point begin = Clock::now();
  for (std::uint64_t index = 0; index < options.most; ++index) {
    if (index % kBetweenLooks == 0 && seconds_since(begin) >= options.seconds) return;
    live.index = index;
    live.count = 0;
    Choices choices(options.seed, index, component.name);
    choices.share(live);
    const Verdict verdict = component.judge(choices);
    if (verdict.ok()) continue;
    line.send(encode(verdict));
    return;
  }
  live.index = options.most;
}

// The lists that are a little smaller than this one: without some of its numbers, which lie side by
// side, or with a smaller one in the place of one.
rc::Seq<std::vector<std::uint32_t>> smaller(const std::vector<std::uint32_t>& numbers) {
  return rc::seq::concat(rc::shrink::removeChunks(numbers),
                         rc::shrink::eachElement(numbers, [](std::uint32_t number) {
                           return rc::shrink::towards(number, std::uint32_t{0});
                         }));
}

}  // namespace

Result<Verdict> judge_apart(const Component& component, std::vector<std::uint32_t>& numbers) {
  const SharedChoices live = share_choices();
  if (live == nullptr) return failed(Status(Code::kInternal, "there is no memory to share"));
  Child child;
  const Status started = child.start([&](ChildLine& line) {
    Choices choices(numbers);
    choices.share(*live);
    if (const Verdict verdict = component.judge(choices); !verdict.ok()) line.send(encode(verdict));
  });
  if (!started.ok()) return failed(started);
  const Clock::time_point begin = Clock::now();
  Verdict verdict;
  while (listen(child, begin, verdict) == Heard::kNothing) continue;
  child.end();
  numbers = numbers_of(*live);
  return verdict;
}

Status shrink(const Component& component, const SearchOptions& options, FailedSituation& failed) {
  using Numbers = std::vector<std::uint32_t>;
  const Clock::time_point begin = Clock::now();
  const auto is_over = [&] {
    return seconds_since(begin) >= options.shrink_seconds ||
           (options.is_interrupted && options.is_interrupted());
  };
  bool is_smaller = true;
  while (is_smaller) {
    is_smaller = false;
    rc::Seq<Numbers> candidates = smaller(failed.choices);
    for (rc::Maybe<Numbers> next = candidates.next(); next && !is_smaller;
         next = candidates.next()) {
      if (is_over()) return {};
      ++failed.runs;
      Numbers used = *next;
      const Result<Verdict> verdict = judge_apart(component, used);
      if (!verdict) return verdict.error();
      if (verdict->failing != failed.verdict.failing) continue;
      // Zeros at the end need not be listed. A list that was not used up becomes shorter.
      used.resize(std::min(used.size(), next->size()));
      while (!used.empty() && used.back() == 0) used.pop_back();
      failed.choices = std::move(used);
      failed.verdict = *verdict;
      is_smaller = true;
    }
  }
  return {};
}

Result<SearchResult> search(const Component& component, const SearchOptions& options) {
  const SharedChoices live = share_choices();
  if (live == nullptr) return failed(Status(Code::kInternal, "there is no memory to share"));
  Child child;
  const Status started =
      child.start([&](ChildLine& line) { judge_many(component, options, *live, line); });
  if (!started.ok()) return failed(started);
  SearchResult result;
  Verdict verdict;
  Clock::time_point quiet_since = Clock::now();
  Heard heard = Heard::kNothing;
  while (heard == Heard::kNothing) {
    if (options.is_interrupted && options.is_interrupted()) break;
    heard = listen(child, quiet_since, verdict);
    if (result.situations != live->index) quiet_since = Clock::now();
    result.situations = live->index;
  }
  child.end();
  if (verdict.ok()) return result;
  result.situations = live->index + 1;
  FailedSituation& found = result.failed.emplace();
  found.verdict = std::move(verdict);
  found.index = live->index;
  found.choices = numbers_of(*live);
  found.first_count = found.choices.size();
  if (Status status = shrink(component, options, found); !status.ok()) return failed(status);
  return result;
}

}  // namespace lockstep::components
