#include "properties/compare/verdict.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "properties/compare/operation.h"

namespace lockstep::properties {
namespace {

constexpr std::size_t kFewestRounds = 6;  // for an interval of 95 %

std::set<std::string> codes_of(const FaultResult& fault) {
  std::set<std::string> out;
  for (const auto& round : fault.rounds)
    for (const Told& told : round) out.insert(told.code);
  return out;
}

std::vector<double> all_of(const TimedResult& time) {
  std::vector<double> out;
  for (const auto& round : time.rounds_ms) out.insert(out.end(), round.begin(), round.end());
  return out;
}

template <class Named>
const Named* named(const std::vector<Named>& all, const std::string& name) {
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&name](const Named& each) { return each.name == name; });
  return found == all.end() ? nullptr : &*found;
}

// The medians of the rounds that both have.
std::pair<std::vector<double>, std::vector<double>> common_rounds(const TimedResult& base,
                                                                  const TimedResult& other) {
  std::pair<std::vector<double>, std::vector<double>> out;
  const std::size_t rounds = std::min(base.rounds_ms.size(), other.rounds_ms.size());
  for (std::size_t i = 0; i < rounds; ++i) {
    if (base.rounds_ms[i].empty() || other.rounds_ms[i].empty()) continue;
    const double a = median_of(base.rounds_ms[i]);
    if (a <= 0) continue;
    out.first.push_back(a);
    out.second.push_back(median_of(other.rounds_ms[i]));
  }
  return out;
}

TimeComparison compare_time(const std::string& name, const TimedResult* base,
                            const TimedResult* other) {
  TimeComparison time;
  time.name = name;
  const auto fill = [&time](const TimedResult* from, bool& has, double& ms, double& p99_ms,
                            std::uint64_t& wrong) {
    const std::vector<double> all = from == nullptr ? std::vector<double>() : all_of(*from);
    has = !all.empty();
    if (!has) return;
    ms = median_of(all);
    p99_ms = percentile_of(all, 99);
    wrong = from->wrong;
    time.is_sum = from->is_sum;
  };
  fill(base, time.has_base, time.base_ms, time.base_p99_ms, time.base_wrong);
  fill(other, time.has_other, time.other_ms, time.other_p99_ms, time.other_wrong);
  return time;
}

std::vector<TimeComparison> compare_times(const LibraryResult& base, const LibraryResult& other,
                                          double limit) {
  std::vector<std::string> names;
  for (const LibraryResult* const library : {&base, &other})
    for (const TimedResult& time : library->times)
      if (std::find(names.begin(), names.end(), time.name) == names.end())
        names.push_back(time.name);
  std::vector<TimeComparison> out;
  std::vector<std::vector<double>> ratios;
  for (const std::string& name : names) {
    const TimedResult* const mine = named(base.times, name);
    const TimedResult* const its = named(other.times, name);
    TimeComparison time = compare_time(name, mine, its);
    ratios.emplace_back();
    if (mine != nullptr && its != nullptr) {
      const auto [base_rounds, other_rounds] = common_rounds(*mine, *its);
      time.is_judged = base_rounds.size() > 1;
      if (time.is_judged) time.ratio = ratio_of(base_rounds, other_rounds);
      ratios.back() = ratios_of(base_rounds, other_rounds);
    }
    out.push_back(std::move(time));
  }
  // Those with fewer rounds cannot be found to differ, and make no mistakes.
  const auto found = static_cast<std::size_t>(
      std::count_if(out.begin(), out.end(), [](const TimeComparison& each) {
        return each.is_judged && each.ratio.rounds >= kFewestRounds;
      }));
  const std::size_t family = std::max<std::size_t>(found, 1);
  for (std::size_t i = 0; i < out.size(); ++i)
    if (out[i].is_judged) out[i].change = judge_ratios(ratios[i], limit, family);
  return out;
}

// "differ above 16 KiB", "differ at 1 KiB, 4 MiB".
std::string sizes_text(const std::set<std::uint64_t>& differing,
                       const std::set<std::uint64_t>& measured) {
  if (differing == measured) return "differ at all sizes";
  const std::uint64_t least = *differing.begin();
  const bool are_upper = std::all_of(measured.begin(), measured.end(), [&](std::uint64_t size) {
    return (size >= least) == differing.contains(size);
  });
  if (are_upper) {
    const auto below = std::prev(measured.lower_bound(least));
    return "differ above " + size_text(*below);
  }
  std::vector<std::string> sizes;
  for (const std::uint64_t size : differing) sizes.push_back(size_text(size));
  return fmt::format("differ at {}", fmt::join(sizes, ", "));
}

// The sizes of the plain sums that were measured, from their names ("all_reduce/float32/16 KiB").
std::set<std::uint64_t> measured_sizes(const std::vector<BitsDifference>& differences,
                                       const std::vector<std::string>& names,
                                       const std::string& prefix) {
  std::set<std::uint64_t> out;
  for (const BitsDifference& each : differences)
    if (each.name.starts_with(prefix)) out.insert(each.bytes);
  for (const std::string& name : names) {
    if (!name.starts_with(prefix)) continue;
    const std::string size = name.substr(prefix.size());
    const std::uint64_t unit = size.ends_with("MiB")   ? std::uint64_t{1} << 20
                               : size.ends_with("KiB") ? std::uint64_t{1} << 10
                                                       : 1;
    out.insert(std::stoull(size) * unit);
  }
  return out;
}

std::vector<std::string> bits_texts(const PairVerdict& pair, int ranks) {
  std::map<std::string, std::set<std::uint64_t>> by_kind;  // "all_reduce/float32/"
  for (const BitsDifference& each : pair.bits)
    by_kind[each.name.substr(0, each.name.rfind('/') + 1)].insert(each.bytes);
  std::vector<std::string> names;
  for (const TimeComparison& time : pair.times) names.push_back(time.name);
  std::vector<std::string> out;
  for (const auto& [prefix, sizes] : by_kind) {
    const std::string kind = prefix.substr(0, prefix.find('/'));
    const std::string dtype = prefix.substr(kind.size() + 1, prefix.size() - kind.size() - 2);
    const std::string what = kind == "all_reduce"     ? "sums"
                             : kind == "rank_ordered" ? "rank-ordered sums"
                                                      : "a reducer's averages";
    out.push_back(fmt::format("bits of {} {} at {} ranks {}", dtype, what, ranks,
                              sizes_text(sizes, measured_sizes(pair.bits, names, prefix))));
  }
  return out;
}

constexpr std::size_t kMostListed = 6;

std::string percent_text(double limit) { return fmt::format("{:g} %", limit * 100); }

std::string times_text(const PairVerdict& pair) {
  std::vector<std::string> slower;
  std::vector<std::string> faster;
  std::size_t unclear = 0;
  std::size_t compared = 0;
  for (const TimeComparison& time : pair.times) {
    if (!time.has_base || !time.has_other) continue;
    ++compared;
    const std::string text = fmt::format("{} ({:.2f} times)", time.name, time.ratio.middle);
    if (time.change == Change::kSlower) slower.push_back(text);
    if (time.change == Change::kFaster) faster.push_back(text);
    if (time.change == Change::kUnclear) ++unclear;
  }
  const auto listed = [](std::vector<std::string> all) {
    const std::size_t more = all.size() - std::min(all.size(), kMostListed);
    all.resize(all.size() - more);
    return fmt::format("{}{}", fmt::join(all, ", "),
                       more == 0 ? "" : fmt::format(" and {} more", more));
  };
  std::string out;
  if (slower.empty())
    out = fmt::format("nothing {}slower than {}", unclear > 0 ? "found " : "",
                      percent_text(pair.limit));
  else
    out = fmt::format("slower by more than {}: {}", percent_text(pair.limit), listed(slower));
  if (!faster.empty()) out += "; faster: " + listed(faster);
  if (unclear > 0)
    out += fmt::format(" ({} of {} intervals are too wide to tell)", unclear, compared);
  return out;
}

void add_told(const LibraryResult& base, const LibraryResult& other, PairVerdict& pair) {
  for (const FaultResult& mine : base.faults) {
    const FaultResult* const its = named(other.faults, mine.name);
    if (its == nullptr) continue;
    const std::set<std::string> a = codes_of(mine);
    const std::set<std::string> b = codes_of(*its);
    // The cause that wins may change from run to run; it is a difference if none is common.
    const bool have_common =
        std::any_of(a.begin(), a.end(), [&b](const std::string& code) { return b.contains(code); });
    if (!have_common)
      pair.notes.push_back(fmt::format("what is told of {} differs ({} -> {})", mine.name,
                                       told_text(mine), told_text(*its)));
  }
}

std::string sent_text(const MessagesResult& sent) {
  return fmt::format("{} ({} B in all)", sent.messages, sent.bytes);
}

void add_messages(const LibraryResult& base, const LibraryResult& other, PairVerdict& pair) {
  std::vector<std::string> differing;
  for (const MessagesResult& mine : base.messages) {
    const MessagesResult* const its = named(other.messages, mine.name);
    if (its == nullptr || (its->messages == mine.messages && its->bytes == mine.bytes)) continue;
    differing.push_back(fmt::format("{}: {} -> {}", mine.name, sent_text(mine), sent_text(*its)));
  }
  if (!differing.empty())
    pair.notes.push_back(fmt::format("messages differ: {}", fmt::join(differing, ", ")));
}

void add_only_in(const std::vector<std::string>& these, const std::vector<std::string>& those,
                 const std::string& format, PairVerdict& pair) {
  for (const std::string& each : these)
    if (std::find(those.begin(), those.end(), each) == those.end())
      pair.notes.push_back(fmt::format(fmt::runtime(format), each));
}

std::uint64_t wrong_of(const LibraryResult& library) {
  std::uint64_t wrong = 0;
  for (const TimedResult& time : library.times) wrong += time.wrong;
  for (const FaultResult& fault : library.faults) wrong += fault.wrong;
  return wrong;
}

std::string table_of(const PairVerdict& pair) {
  std::string out =
      fmt::format("{:<30} {:>11} {:>11} {:>11} {:>11}  {:<24} {:<8} {:>7} {:>7}\n", "time in ms",
                  pair.base.substr(0, 11), "p99", pair.other.substr(0, 11), "p99", "ratio",
                  "change", "wrong", "wrong");
  for (const TimeComparison& time : pair.times) {
    const auto wrong = [&time](bool has, std::uint64_t count) {
      return time.is_sum && has ? std::to_string(count) : std::string("-");
    };
    const auto ms = [](bool has, double value) {
      return has ? fmt::format("{:.3f}", value) : std::string("-");
    };
    out +=
        fmt::format("{:<30} {:>11} {:>11} {:>11} {:>11}  {:<24} {:<8} {:>7} {:>7}\n", time.name,
                    ms(time.has_base, time.base_ms), ms(time.has_base, time.base_p99_ms),
                    ms(time.has_other, time.other_ms), ms(time.has_other, time.other_p99_ms),
                    ratio_text(time), time.is_judged ? change_text(time.change) : "-",
                    wrong(time.has_base, time.base_wrong), wrong(time.has_other, time.other_wrong));
  }
  return out;
}

}  // namespace

bool PairVerdict::has_change(Change change) const {
  return std::any_of(times.begin(), times.end(),
                     [change](const TimeComparison& time) { return time.change == change; });
}

bool PairVerdict::is_different() const {
  return !bits.empty() || !notes.empty() || has_change(Change::kSlower) ||
         has_change(Change::kFaster);
}

std::string PairVerdict::line(int ranks) const {
  std::vector<std::string> parts = bits_texts(*this, ranks);
  if (parts.empty()) parts.emplace_back("all bits agree");
  parts.push_back(times_text(*this));
  parts.insert(parts.end(), notes.begin(), notes.end());
  return fmt::format("{} -> {}: {}", base, other, fmt::join(parts, "; "));
}

PairVerdict compare(const ComparisonResults& results, std::size_t base, std::size_t other,
                    double limit) {
  const LibraryResult& a = results.libraries.at(base);
  const LibraryResult& b = results.libraries.at(other);
  PairVerdict pair;
  pair.base = a.name;
  pair.other = b.name;
  pair.limit = limit;
  pair.times = compare_times(a, b, limit);
  for (const BitsDifference& each : results.differences)
    if (each.base == a.name && each.other == b.name) pair.bits.push_back(each);
  add_told(a, b, pair);
  add_messages(a, b, pair);
  add_only_in(b.lacks, a.lacks, b.name + " lacks {}", pair);
  add_only_in(a.lacks, b.lacks, b.name + " has {}, which " + a.name + " lacks", pair);
  add_only_in(b.problems, a.problems, "only in " + b.name + ": {}", pair);
  add_only_in(a.problems, b.problems, "no longer in " + b.name + ": {}", pair);
  if (wrong_of(a) != wrong_of(b))
    pair.notes.push_back(
        fmt::format("elements that are not as declared: {} -> {}", wrong_of(a), wrong_of(b)));
  return pair;
}

std::vector<PairVerdict> compare_all(const ComparisonResults& results, double limit) {
  std::vector<PairVerdict> out;
  for (std::size_t i = 1; i < results.libraries.size(); ++i)
    out.push_back(compare(results, i - 1, i, limit));
  return out;
}

std::string ratio_text(const TimeComparison& time) {
  if (!time.is_judged) return "-";
  return fmt::format("{:.3f} [{:.3f}, {:.3f}]", time.ratio.middle, time.ratio.low, time.ratio.high);
}

const char* change_text(Change change) {
  switch (change) {
    case Change::kSlower:
      return "slower";
    case Change::kFaster:
      return "faster";
    case Change::kWithin:
      return "within";
    case Change::kUnclear:
      break;
  }
  return "unclear";
}

std::string told_text(const FaultResult& fault) {
  return fmt::format("{}", fmt::join(codes_of(fault), ", "));
}

double told_after_ms(const FaultResult& fault) {
  std::vector<double> all;
  for (const auto& round : fault.rounds)
    for (const Told& told : round) all.push_back(told.after_ms);
  return all.empty() ? 0 : median_of(std::move(all));
}

std::string to_text(const ComparisonResults& results, double limit) {
  std::string out =
      fmt::format("NCCL side by side, {}; {} ranks, {} rounds of {} repetitions, {}\n{}\n",
                  results.ran_on, results.ranks, results.rounds, results.repetitions,
                  results.is_pinned ? "Ring and Simple with one channel" : "NCCL's own choices",
                  results.machine.to_text());
  for (const LibraryResult& library : results.libraries)
    out += fmt::format("  {} is NCCL {}\n", library.name, library.version);
  for (const PairVerdict& pair : compare_all(results, limit)) {
    out += "\n" + table_of(pair);
    for (const BitsDifference& each : pair.bits)
      out += fmt::format("bits differ: {} in {} of {} elements, first in number {}\n", each.name,
                         each.differences, each.elements, each.first);
  }
  out += "\n";
  for (const LibraryResult& library : results.libraries) {
    std::map<std::string, std::vector<std::string>> sums;  // by explanation
    for (const BitsResult& bits : library.bits) sums[bits.explanation].push_back(bits.name);
    for (const auto& [explanation, names] : sums)
      out += fmt::format("{}: {}: {}\n", library.name, explanation, fmt::join(names, ", "));
    std::vector<std::string> sent;
    for (const MessagesResult& each : library.messages)
      sent.push_back(fmt::format("{} {}", each.name, sent_text(each)));
    if (!sent.empty())
      out += fmt::format("{}: messages of one operation, all ranks: {}\n", library.name,
                         fmt::join(sent, ", "));
    for (const FaultResult& fault : library.faults)
      out += fmt::format("{}: told of {}: {} after {:.1f} ms\n", library.name, fault.name,
                         told_text(fault), told_after_ms(fault));
    for (const std::string& problem : library.problems)
      out += fmt::format("{}: {}\n", library.name, problem);
  }
  out += "\n";
  for (const PairVerdict& pair : compare_all(results, limit))
    out += pair.line(results.ranks) + "\n";
  return out;
}

}  // namespace lockstep::properties
