#include "properties/compare/side_by_side.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "properties/compare/explain_sum.h"
#include "properties/compare/fault_round.h"
#include "properties/compare/fleet.h"
#include "properties/compare/stop.h"
#include "properties/compare/temporary_folder.h"
#include "reference/arithmetic.h"

namespace lockstep::properties {
namespace {

using Json = nlohmann::json;
using Kind = Operation::Kind;

constexpr int kCalmTimeoutMs = 20000;      // of groups without a fault
constexpr std::uint64_t kSmallSum = 1024;  // bytes, of first operations, aborts and faults

std::uint64_t hash_of(const std::vector<std::byte>& bytes) {  // FNV-1a
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const std::byte each : bytes)
    hash = (hash ^ static_cast<std::uint64_t>(each)) * 0x100000001b3;
  return hash;
}

std::vector<std::byte> read_bytes(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const auto* const begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

class SideBySide {
 public:
  explicit SideBySide(const SideBySideSetup& setup) : setup_(setup) {}
  Result<ComparisonResults> run();

 private:
  // One library in a round; without a fleet it takes no further part in it.
  struct Contestant {
    std::size_t index = 0;
    std::unique_ptr<Fleet> fleet;
  };
  using Contestants = std::vector<Contestant>;

  void prepare_all();
  Status run_round(int round);
  Status begin(Contestant& contestant, int round);
  Status init(Contestant& contestant, const char* name, int round);
  void init_again(Contestant& contestant, int round);
  void measure_all(Contestants& all, int round, bool is_of_group);
  void measure(Contestant& contestant, std::size_t operation, const std::string& name, int round,
               int repetitions);
  void note_host_side(std::size_t library, const Operation& operation, int round,
                      const Fleet::Answers& answers);
  void shrink(Contestant& contestant, int round);
  void abort_in_flight(Contestant& contestant, int round);
  void run_fault(std::size_t library, const std::string& fault, int round);
  void look_at_bits();

  std::optional<Fleet::Answers> ask(Contestant& contestant, const char* what, const Json& request,
                                    int count = 0);
  void note_problem(std::size_t library, const std::string& what, const Status& status);
  TimedResult& note_times(std::size_t library, const std::string& name, int round,
                          std::vector<double> times_ms);
  Fleet::Setup fleet_setup(std::size_t library) const;
  std::string bits_file(std::size_t library, std::size_t operation) const {
    return fmt::format("{}/bits-{}-{}", folder_.path(), library, operation);
  }
  std::size_t smallest_sum() const { return setup_.operations.size(); }
  std::size_t smallest_ordered_sum() const { return smallest_sum() + 1; }
  std::size_t sum_of_survivors() const { return smallest_sum() + 2; }

  // The libraries that still take part, in the order of this turn.
  template <class Body>
  void in_turn(Contestants& all, std::size_t turn, Body body) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      Contestant& contestant = all[(i + turn) % all.size()];
      if (contestant.fleet != nullptr && stop_signal() == 0) body(contestant);
    }
  }

  const SideBySideSetup& setup_;
  const TemporaryFolder folder_;
  std::vector<PreparedOperation> prepared_;  // those of the setup, then the three small sums
  ComparisonResults results_;
};

void SideBySide::prepare_all() {
  for (const Operation& operation : setup_.operations) prepared_.push_back(prepare(operation));
  const auto ranks = static_cast<std::uint32_t>(setup_.ranks);
  const auto add = [this](Kind kind, std::uint32_t of) {
    prepared_.push_back(prepare({kind, reference::DType::kFloat32, kSmallSum, of}));
  };
  add(Kind::kAllReduce, ranks);
  add(Kind::kRankOrdered, ranks);
  add(Kind::kAllReduce, ranks - 1);
}

void SideBySide::note_problem(std::size_t library, const std::string& what, const Status& status) {
  if (stop_signal() != 0) return;
  std::vector<std::string>& problems = results_.libraries[library].problems;
  const std::string line = fmt::format("{}: {}", what, status.failure().detail);
  if (std::find(problems.begin(), problems.end(), line) == problems.end()) problems.push_back(line);
}

// A failure is a problem of the library, which then takes no further part in the round.
std::optional<Fleet::Answers> SideBySide::ask(Contestant& contestant, const char* what,
                                              const Json& request, int count) {
  if (contestant.fleet == nullptr) return std::nullopt;
  Result<Fleet::Answers> answers = contestant.fleet->ask(request, count);
  if (answers) return std::move(*answers);
  note_problem(contestant.index, what, answers.error());
  contestant.fleet.reset();
  return std::nullopt;
}

TimedResult& SideBySide::note_times(std::size_t library, const std::string& name, int round,
                                    std::vector<double> times_ms) {
  std::vector<TimedResult>& times = results_.libraries[library].times;
  auto found = std::find_if(times.begin(), times.end(),
                            [&name](const TimedResult& each) { return each.name == name; });
  if (found == times.end()) {
    times.emplace_back();
    times.back().name = name;
    found = times.end() - 1;
  }
  const auto index = static_cast<std::size_t>(round);
  if (found->rounds_ms.size() <= index) found->rounds_ms.resize(index + 1);
  found->rounds_ms[index] = std::move(times_ms);
  return *found;
}

Fleet::Setup SideBySide::fleet_setup(std::size_t library) const {
  Fleet::Setup setup;
  setup.ranks = setup_.ranks;
  setup.place.way = setup_.way;
  setup.place.setup = setup_.network;
  setup.place.setup.library = setup_.libraries[library].file;
  setup.place.is_pinned = setup_.is_pinned;
  return setup;
}

Status SideBySide::init(Contestant& contestant, const char* name, int round) {
  Result<Fleet::Answers> id = contestant.fleet->ask({{"do", "make_id"}}, 1);
  if (!id) return id.error();
  Result<Fleet::Answers> made =
      contestant.fleet->ask({{"do", "init"}, {"id", id->front().at("id")}});
  if (!made) return made.error();
  note_times(contestant.index, name, round, times_of(*made));
  return {};
}

// Starts the ranks, up to their first operation. What fails here, fails the run.
Status SideBySide::begin(Contestant& contestant, int round) {
  auto fleet = Fleet::start(fleet_setup(contestant.index), folder_.path(), prepared_);
  if (!fleet) return fleet.error();
  contestant.fleet = std::move(*fleet);
  Result<Fleet::Answers> loaded = contestant.fleet->ask({{"do", "load"}});
  if (!loaded) return loaded.error();
  note_times(contestant.index, "load", round, times_of(*loaded));
  results_.libraries[contestant.index].version =
      nccl_version_text(loaded->front().at("version").get<int>());
  LOCKSTEP_RETURN_IF_ERROR(init(contestant, "init", round));
  measure(contestant, smallest_sum(), "first all_reduce", round, 1);
  return {};
}

void SideBySide::measure(Contestant& contestant, std::size_t operation, const std::string& name,
                         int round, int repetitions) {
  Json request = {{"do", "measure"}, {"operation", operation}, {"repetitions", repetitions}};
  if (round == 0) request["keep"] = bits_file(contestant.index, operation);
  const auto answers = ask(contestant, name.c_str(), request);
  if (!answers) return;
  TimedResult& time = note_times(contestant.index, name, round, times_of(*answers));
  time.is_sum = true;
  time.elements += prepared_[operation].operation.count() *
                   static_cast<std::uint64_t>(repetitions * setup_.ranks);
  time.wrong += sum_of(*answers, "wrong");
  const Operation& measured = prepared_[operation].operation;
  if (measured.kind == Kind::kAllReduce && name == measured.name())
    note_host_side(contestant.index, measured, round, *answers);
}

// What a plain sum cost the host. A library whose proxy has no thread of that name has no time of
// it, and over NCCL's own sockets nobody counts messages.
void SideBySide::note_host_side(std::size_t library, const Operation& operation, int round,
                                const Fleet::Answers& answers) {
  note_times(library, operation.enqueue_name(), round, greatest_ms(answers, "enqueue"));
  const std::vector<double> proxy = sums_ms(answers, "proxy");
  if (std::any_of(proxy.begin(), proxy.end(), [](double ms) { return ms > 0; }))
    note_times(library, operation.proxy_name(), round, proxy);
  const std::uint64_t messages = sum_of(answers, "messages");
  if (round == 0 && messages > 0)
    results_.libraries[library].messages.push_back(
        {operation.name(), messages, sum_of(answers, "bytes")});
}

void SideBySide::measure_all(Contestants& all, int round, bool is_of_group) {
  for (std::size_t i = 0; i < setup_.operations.size(); ++i) {
    const bool needs_group = setup_.operations[i].kind != Kind::kAllReduce;
    if (needs_group != is_of_group) continue;
    in_turn(all, static_cast<std::size_t>(round) + i, [&](Contestant& contestant) {
      measure(contestant, i, setup_.operations[i].name(), round, setup_.repetitions);
    });
  }
}

void SideBySide::init_again(Contestant& contestant, int round) {
  const Status status = init(contestant, "init again", round);
  if (status.ok()) return;
  note_problem(contestant.index, "init again", status);
  contestant.fleet.reset();
}

void SideBySide::shrink(Contestant& contestant, int round) {
  init_again(contestant, round);
  const auto answers = ask(contestant, "shrink",
                           {{"do", "shrink"}, {"operation", sum_of_survivors()}}, setup_.ranks - 1);
  if (!answers) return;
  LibraryResult& library = results_.libraries[contestant.index];
  if (answers->front().contains("lacks")) {
    library.lacks = {answers->front().at("lacks").get<std::string>()};
  } else {
    TimedResult& time = note_times(contestant.index, "shrink", round, times_of(*answers));
    time.is_sum = true;
    time.elements += prepared_[sum_of_survivors()].operation.count() *
                     static_cast<std::uint64_t>(setup_.ranks - 1);
    time.wrong += sum_of(*answers, "wrong");
  }
  const auto aborted = ask(contestant, "abort after shrink", {{"do", "abort"}});
  if (aborted) note_times(contestant.index, "abort when idle", round, times_of(*aborted));
}

void SideBySide::abort_in_flight(Contestant& contestant, int round) {
  init_again(contestant, round);
  const auto answers = ask(contestant, "abort", {{"do", "abort"}, {"operation", smallest_sum()}});
  if (answers) note_times(contestant.index, "abort", round, times_of(*answers));
}

Status SideBySide::run_round(int round) {
  Contestants all(setup_.libraries.size());
  const auto first = static_cast<std::size_t>(round);
  for (std::size_t i = 0; i < all.size(); ++i) {
    Contestant& contestant = all[(i + first) % all.size()];
    contestant.index = (i + first) % all.size();
    const Status status = begin(contestant, round);
    if (stop_signal() != 0) return Status(Code::kAborted, "stopped by a signal");
    if (!status.ok())
      return Status(status.code(), fmt::format("{}: {}", setup_.libraries[contestant.index].name,
                                               status.failure().detail));
  }
  measure_all(all, round, false);
  in_turn(all, first, [&](Contestant& contestant) {
    const auto answers = ask(contestant, "destroy", {{"do", "destroy"}});
    if (answers) note_times(contestant.index, "destroy", round, times_of(*answers));
  });
  in_turn(all, first, [&](Contestant& contestant) {
    const auto answers =
        ask(contestant, "connect a group", {{"do", "connect"}, {"timeout_ms", kCalmTimeoutMs}});
    if (answers) note_times(contestant.index, "connect a group", round, times_of(*answers));
  });
  measure_all(all, round, true);
  in_turn(all, first, [&](Contestant& contestant) {
    ask(contestant, "leave a group", {{"do", "disconnect"}});
  });
  if (!setup_.has_lifecycle) return {};
  in_turn(all, first, [&](Contestant& contestant) { shrink(contestant, round); });
  in_turn(all, first, [&](Contestant& contestant) { abort_in_flight(contestant, round); });
  return {};
}

void SideBySide::run_fault(std::size_t library, const std::string& fault, int round) {
  FaultRound one{fault, setup_.timeout_ms, smallest_ordered_sum()};
  auto told = run_fault_round(fleet_setup(library), folder_.path(), prepared_, one);
  if (!told) return note_problem(library, fault, told.error());
  std::vector<FaultResult>& faults = results_.libraries[library].faults;
  auto found = std::find_if(faults.begin(), faults.end(),
                            [&fault](const FaultResult& each) { return each.name == fault; });
  if (found == faults.end()) {
    faults.emplace_back();
    faults.back().name = fault;
    found = faults.end() - 1;
  }
  double last_ms = 0;
  for (const Told& each : *told) last_ms = std::max(last_ms, each.after_ms);
  note_times(library, "told of " + fault, round, {last_ms});
  found->wrong += one.wrong;
  found->rounds.push_back(std::move(*told));
}

// Explains the bits of each sum, and compares those of neighbours.
void SideBySide::look_at_bits() {
  for (std::size_t i = 0; i < setup_.operations.size(); ++i) {
    const PreparedOperation& prepared = prepared_[i];
    const Operation& operation = prepared.operation;
    const std::uint32_t width = reference::size_of(operation.dtype);
    std::vector<std::byte> before;
    for (std::size_t library = 0; library < setup_.libraries.size(); ++library) {
      std::vector<std::byte> bits = read_bytes(bits_file(library, i));
      if (bits.size() == prepared.expected.size()) {
        const bool is_sum = operation.kind == Kind::kAllReduce;
        results_.libraries[library].bits.push_back(
            {operation.name(), fmt::format("{:016x}", hash_of(bits)),
             is_sum                      ? explain_sum(prepared, bits)
             : bits == prepared.expected ? "as declared"
                                         : "not as declared"});
      }
      if (library > 0 && bits.size() == before.size() && bits != before) {
        const auto at = std::mismatch(bits.begin(), bits.end(), before.begin()).first;
        results_.differences.push_back({operation.name(), dtype_name(operation.dtype),
                                        operation.bytes, setup_.libraries[library - 1].name,
                                        setup_.libraries[library].name, operation.count(),
                                        count_differences(before, bits, width),
                                        static_cast<std::uint64_t>(at - bits.begin()) / width});
      }
      before = std::move(bits);
    }
  }
}

Result<ComparisonResults> SideBySide::run() {
  if (folder_.path().empty())
    return failed(
        Status(Code::kTransport, "no folder for temporary files can be made: set TMPDIR"));
  results_.commit = setup_.commit;
  results_.ran_on = setup_.way.label;
  results_.ranks = setup_.ranks;
  results_.rounds = setup_.rounds;
  results_.repetitions = setup_.repetitions;
  results_.is_pinned = setup_.is_pinned;
  for (const Library& library : setup_.libraries) {
    results_.libraries.emplace_back();
    results_.libraries.back().name = library.name;
  }
  prepare_all();
  for (int round = 0; round < setup_.rounds; ++round) {
    setup_.progress(fmt::format("round {} of {}", round + 1, setup_.rounds));
    if (Status status = run_round(round); !status.ok()) return failed(std::move(status));
  }
  for (int round = 0; round < setup_.fault_rounds; ++round) {
    setup_.progress(fmt::format("round {} of {} with faults", round + 1, setup_.fault_rounds));
    for (const std::string& fault : setup_.faults) {
      for (std::size_t i = 0; i < setup_.libraries.size() && stop_signal() == 0; ++i)
        run_fault((i + static_cast<std::size_t>(round)) % setup_.libraries.size(), fault, round);
    }
  }
  if (stop_signal() != 0) return failed(Status(Code::kAborted, "stopped by a signal"));
  look_at_bits();
  return std::move(results_);
}

}  // namespace

Result<ComparisonResults> run_side_by_side(const SideBySideSetup& setup) {
  return SideBySide(setup).run();
}

}  // namespace lockstep::properties
