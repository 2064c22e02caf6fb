#include "properties/subject/join_check.h"

#include <fmt/format.h>

#include <cctype>
#include <vector>

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

std::vector<std::size_t> numbers_in(const std::string& text) {
  std::vector<std::size_t> numbers;
  bool is_number = false;
  for (const char c : text) {
    const bool is_digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (is_digit && !is_number) numbers.push_back(0);
    if (is_digit) numbers.back() = 10 * numbers.back() + static_cast<std::size_t>(c - '0');
    is_number = is_digit;
  }
  return numbers;
}

// How many of `ranks` have an option on, where one rank may differ from the others.
std::size_t count_on(bool is_on, bool one_differs, std::size_t ranks) {
  if (!one_differs) return is_on ? ranks : 0;
  return is_on ? ranks - 1 : 1;
}

}  // namespace

std::string flaw_of_join(DataParallel& parallel, const properties::Environment& environment) {
  using enum properties::Environment::UnlikeJoin;
  const FlightRecord own = parallel.flight_record();
  const auto ranks = static_cast<std::size_t>(own.size);
  const bool is_other = static_cast<std::size_t>(own.rank) == environment.unlike_rank % ranks;
  const bool throws = environment.unlike_terminates;
  const bool by_active = environment.unlike_divides_active;
  const bool throws_differ = environment.unlike_join == kTermination;
  JoinOptions options;
  options.throw_on_early_termination = throws != (is_other && throws_differ);
  options.divide_by_active = by_active != (is_other && !throws_differ);
  const Status begun = parallel.begin_join(options);
  if (!begun.ok()) return "begin_join fails: " + begun.to_string();
  const Status ended = parallel.end_join();
  if (ranks == 1) return ended.ok() ? "" : "a rank alone cannot join: " + ended.to_string();
  const auto is = [&](const char* what) {
    return fmt::format("ranks that join with different options {}: {}", what, ended.to_string());
  };
  if (ended.code() != Code::kMismatch) return is("are not told so");
  const std::vector<std::size_t> counts = {ranks, count_on(throws, throws_differ, ranks),
                                           count_on(by_active, !throws_differ, ranks)};
  if (numbers_in(ended.failure().detail) != counts) return is("are told other numbers of ranks");
  const bool is_named = ended.failure().collective == "all_reduce" && ended.failure().sequence >= 0;
  if (!is_named) return is("are not told in which collective");
  if (parallel.poisoned().code() != Code::kMismatch) return is("go on");
  return {};
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
