#include "properties/cli/gate.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "properties/case/case_json.h"
#include "properties/case/invalid.h"
#include "properties/cli/fuzz.h"
#include "properties/cli/interrupt.h"
#include "properties/cli/output.h"
#include "properties/cli/scratch.h"
#include "properties/cli/server.h"

namespace lockstep::properties {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxRecordBytes = 64u << 20u;
constexpr std::size_t kHashDigits = 16;

// A line of a record: "step 1, p2" and "0123456789abcdef: the average, added in rank order".
using Lines = std::map<std::string, std::string>;

struct Record {
  std::map<std::string, Lines> cases;  // by file name
  nlohmann::json changes = nlohmann::json::array();
};

std::string record_file(const GateOptions& options) {
  return options.folder + "/" + options.label + ".json";
}

std::string this_platform() {
  utsname name{};
  if (::uname(&name) != 0) return "unknown";
  std::string label = fmt::format("{}-{}", name.sysname, name.machine);
  std::transform(label.begin(), label.end(), label.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return label;
}

// Why a command ends early: a line, an exit code, and lines that say more.
struct Ended {
  std::string why;
  int code = kUsage;
  std::string details = {};
};

std::optional<Ended> check_label(const std::string& label) {
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == '+';
  };
  if (!label.empty() && label.front() != '.' && std::all_of(label.begin(), label.end(), is_plain))
    return std::nullopt;
  return Ended{"--label: it names a file: give letters, digits, and any of -_.+"};
}

Result<Record> read_record(const std::string& file) {
  const Result<std::string> text = read_file(file, kMaxRecordBytes);
  if (!text) return failed(text.error());
  try {
    const nlohmann::json json = nlohmann::json::parse(*text);
    if (json.at("gate").get<int>() != 1)
      return failed(invalid(file + ": a newer Lockstep has written it: use that one"));
    Record record;
    record.changes = json.at("changes");
    for (const auto& [name, lines] : json.at("cases").items()) {
      record.cases[name] = lines.get<Lines>();
      for (const auto& [key, line] : record.cases[name])
        if (line.size() < kHashDigits)
          return failed(invalid(fmt::format("{}: '{}' of {} has no bits", file, key, name)));
    }
    return record;
  } catch (const nlohmann::json::exception& error) {
    return failed(
        invalid(fmt::format("{}: it is no record of lockstep gate: {}", file, error.what())));
  }
}

// The labels that the folder has records for.
std::string labels_of(const std::string& folder) {
  std::vector<std::string> labels;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == ".json") labels.push_back(entry.path().stem().string());
  std::sort(labels.begin(), labels.end());
  return labels.empty() ? "none" : fmt::format("{}", fmt::join(labels, ", "));
}

// Runs the cases of one command in one server.
class Gate {
 public:
  explicit Gate(const GateOptions& options)
      : options_(options), server_(options.lane, options.subject) {}

  // The lines of one case, or why it gives none. A case is right if the model says so, or, for a
  // subject that adds in an order of its own, if its averages are near the model's.
  std::optional<Ended> run(const std::string& name, const Case& c, Lines& lines) {
    const Outcome first = run_once(c);
    if (interrupted()) return Ended{"gate: interrupted", kInterrupted};
    const Verdict& verdict = first.verdict;
    const bool adds_freely = options_.subject.profile.any_arithmetic ||
                             !options_.subject.capabilities.has(Capability::kRounding);
    const bool is_near = std::all_of(first.gradients.begin(), first.gradients.end(),
                                     [](const GradientRecord& each) { return each.is_average; });
    if (!verdict.ok() && !(adds_freely && verdict.oracle == "bits" && is_near))
      return Ended{fmt::format("{}: {}", name, verdict_line(first)),
                   static_cast<int>(verdict.failing), verdict.message + "\n"};
    tells_order_ = false;
    for (const GradientRecord& each : first.gradients) {
      tells_order_ = tells_order_ || each.tells_order;
      lines[fmt::format("step {}, p{}", each.step, each.parameter)] = fmt::format(
          "{:0{}x}{}{}", each.hash, kHashDigits, each.made_by.empty() ? "" : ": ", each.made_by);
    }
    return std::nullopt;
  }
  // Whether other orders of additions would have given other bits in the last case.
  bool tells_order() const { return tells_order_; }

  // Every case of the folder, by file name.
  std::optional<Ended> run_folder(std::map<std::string, Lines>& all) {
    std::error_code error;
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(options_.folder + "/cases", error))
      if (entry.path().extension() == ".json") files.push_back(entry.path());
    if (error)
      return Ended{
          fmt::format("cannot read the folder {}/cases: {}", options_.folder, error.message())};
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files) {
      const Result<Case> c = read_case(file.string());
      if (!c) return Ended{c.error().failure().detail};
      const std::string lacks = missing_message(*c, able(), options_.subject.name());
      if (!lacks.empty()) return Ended{fmt::format("{}: {}", file.string(), lacks)};
      Lines& lines = all[file.filename().string()];
      if (auto ended = run(file.string(), *c, lines)) return ended;
      Lines again;
      if (auto ended = run(file.string(), *c, again)) return ended;
      if (again != lines)
        return Ended{fmt::format("{}: two runs gave different bits, so that there is nothing to "
                                 "hold the subject to",
                                 file.string()),
                     static_cast<int>(Failing::kNotDeterministic)};
    }
    return std::nullopt;
  }

  // Fills an empty folder with cases whose sums tell orders of additions apart.
  std::optional<Ended> generate_cases() {
    constexpr std::uint64_t kMostTries = 60;  // for each case that is kept
    FuzzOptions fuzz;
    fuzz.subject = options_.subject;
    fuzz.subject.capabilities = able();
    fuzz.generate.faults = GenerateOptions::Faults::kNone;
    const GenerateOptions generated = generate_options_of(fuzz, options_.lane);
    std::vector<Case> kept;
    for (std::uint64_t i = 0; kept.size() < options_.cases && i < kMostTries * options_.cases;
         ++i) {
      const Case c = generate(options_.seed, i, generated);
      if (c.program.world < 2) continue;
      Lines lines;
      const auto ended = run(fmt::format("case {} of seed {}", i, options_.seed), c, lines);
      if (ended) return ended;
      if (tells_order()) kept.push_back(c);
    }
    if (kept.size() < options_.cases)
      return Ended{fmt::format("only {} of {} generated cases have sums that tell orders of "
                               "additions apart: give --cases {}, or another --seed",
                               kept.size(), kMostTries * options_.cases, kept.size()),
                   kInconclusive};
    std::error_code error;
    fs::create_directories(options_.folder + "/cases", error);
    for (std::size_t i = 0; i < kept.size(); ++i)
      if (const Status status =
              write_file(fmt::format("{}/cases/{:03}.json", options_.folder, i),
                         to_json(kept[i], fmt::format("of lockstep gate, seed {}", options_.seed)));
          !status.ok())
        return Ended{status.failure().detail};
    return std::nullopt;
  }

 private:
  Capabilities able() const { return options_.subject.capabilities.with(Capability::kRounding); }
  Outcome run_once(const Case& c) {
    CaseServer::Request request;
    request.gradients = true;
    return unless_machine_lacks(server_.run(c, request), options_.lane, options_.subject, 1);
  }

  const GateOptions& options_;
  CaseServer server_;
  bool tells_order_ = false;
};

std::string made_by(const std::string& line) {
  return line.size() > kHashDigits + 2 ? line.substr(kHashDigits + 2)
                                       : "sums that were not reduced, or that nothing explains";
}

// The cases whose bits differ, and lines about the first of them.
std::vector<std::string> changed_cases(const std::map<std::string, Lines>& before,
                                       const std::map<std::string, Lines>& now,
                                       std::string& about) {
  constexpr std::size_t kMostTold = 8;
  std::vector<std::string> changed;
  std::size_t told = 0;
  for (const auto& [name, lines] : now) {
    const auto recorded = before.find(name);
    bool differs = recorded == before.end() || recorded->second.size() != lines.size();
    if (recorded == before.end()) about += fmt::format("{}: it is not in the record\n", name);
    for (const auto& [place, line] : lines) {
      if (recorded == before.end()) break;
      const auto old = recorded->second.find(place);
      if (old != recorded->second.end() &&
          old->second.compare(0, kHashDigits, line, 0, kHashDigits) == 0)
        continue;
      differs = true;
      if (++told > kMostTold) continue;
      about += fmt::format("{}: {} has other bits\n  recorded: {}\n  now:      {}\n", name, place,
                           old == recorded->second.end() ? "nothing" : made_by(old->second),
                           made_by(line));
    }
    if (differs) changed.push_back(name);
  }
  for (const auto& [name, lines] : before)
    if (!now.contains(name)) {
      about += fmt::format("{}: it is in the record, and its file is gone\n", name);
      changed.push_back(name);
    }
  if (told > kMostTold) about += fmt::format("and {} more gradients\n", told - kMostTold);
  return changed;
}

std::string to_text(const Record& record, const GateOptions& options) {
  const nlohmann::json json = {
      {"gate", 1},         {"subject", options.subject.name()}, {"lane", name_of(options.lane)},
      {"commit", kCommit}, {"changes", record.changes},         {"cases", record.cases}};
  return json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string counted(const std::map<std::string, Lines>& cases) {
  std::size_t gradients = 0;
  for (const auto& [name, lines] : cases) gradients += lines.size();
  return fmt::format("{} cases with {} gradients", cases.size(), gradients);
}

int end_with(const Ended& ended) {
  tell(ended.details);
  return complain(ended.why, ended.code);
}

GateOptions with_label(GateOptions options) {
  if (options.label.empty()) options.label = this_platform();
  return options;
}

}  // namespace

int run_gate_record(const GateOptions& given) {
  const GateOptions options = with_label(given);
  if (const auto wrong = check_label(options.label)) return end_with(*wrong);
  watch_for_interrupt();
  const ScratchFolder scratch;
  Gate gate(options);
  std::error_code error;
  const std::string file = record_file(options);
  Record record;
  const bool is_new = !fs::exists(file, error);
  if (!is_new) {
    Result<Record> old = read_record(file);
    if (!old) return complain(old.error());
    record = std::move(*old);
  }
  if (!fs::exists(options.folder + "/cases", error))
    if (const auto ended = gate.generate_cases()) return end_with(*ended);
  std::map<std::string, Lines> now;
  if (const auto ended = gate.run_folder(now)) return end_with(*ended);
  std::string about;
  const std::vector<std::string> changed = changed_cases(record.cases, now, about);
  if (!is_new && changed.empty()) {
    tell(fmt::format("gate: {} cases have the bits that {} has already\n", now.size(), file));
    return 0;
  }
  if (!is_new && options.why.empty()) {
    tell(about);
    return complain(
        fmt::format("gate: {} of {} cases have other bits than {}: give the reason "
                    "with --why",
                    changed.size(), now.size(), file));
  }
  record.changes.push_back(
      {{"why", is_new && options.why.empty() ? "the first record" : options.why},
       {"cases", changed.size()}});
  record.cases = std::move(now);
  if (const Status status = write_file(file, to_text(record, options)); !status.ok())
    return complain(status);
  tell(fmt::format("gate: {} recorded in {}\n", counted(record.cases), file));
  return 0;
}

int run_gate_check(const GateOptions& given) {
  const GateOptions options = with_label(given);
  if (const auto wrong = check_label(options.label)) return end_with(*wrong);
  watch_for_interrupt();
  const ScratchFolder scratch;
  const std::string file = record_file(options);
  std::error_code error;
  if (!fs::exists(file, error))
    return complain(fmt::format("there is no record {} (labels there: {}): make it with lockstep "
                                "gate record {} --label {}, and commit it",
                                file, labels_of(options.folder), options.folder, options.label),
                    kInconclusive);
  const Result<Record> record = read_record(file);
  if (!record) return complain(record.error());
  Gate gate(options);
  std::map<std::string, Lines> now;
  if (const auto ended = gate.run_folder(now)) return end_with(*ended);
  std::string about;
  const std::vector<std::string> changed = changed_cases(record->cases, now, about);
  if (changed.empty()) {
    tell(fmt::format("gate: {} have the recorded bits ({})\n", counted(now), options.label));
    return 0;
  }
  tell(about);
  tell(
      fmt::format("FAIL: {} of {} cases have other bits than {}\n"
                  "  if that is meant: lockstep gate record {} --label {} --why REASON\n",
                  changed.size(), now.size(), file, options.folder, options.label));
  return static_cast<int>(Failing::kWrongBits);
}

}  // namespace lockstep::properties
