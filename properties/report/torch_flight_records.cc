#include "properties/report/torch_flight_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "properties/report/pickle.h"
#include "reducer/diagnosis/diagnosis.h"

namespace lockstep::properties {
namespace {

using PlainJson = nlohmann::json;

constexpr std::string_view kCompleted = "completed";
constexpr std::size_t kMostRanks = 1u << 20;
constexpr std::size_t kMostShown = 16;  // groups of ranks that differ

tl::unexpected<Status> not_read(const std::string& file, const std::string& why) {
  return failed(Status(Code::kInvalidArgument, fmt::format("{}: {}", file, why)));
}

// The last number in the name of the file.
std::optional<int> rank_in(const std::string& file) {
  const std::string_view name = std::string_view(file).substr(file.rfind('/') + 1);
  const std::size_t end = name.find_last_of("0123456789");
  if (end == std::string_view::npos) return std::nullopt;
  std::size_t begin = end;
  while (begin > 0 && name[begin - 1] >= '0' && name[begin - 1] <= '9') --begin;
  int rank = 0;
  const auto read = std::from_chars(name.data() + begin, name.data() + end + 1, rank);
  if (read.ec != std::errc() || rank < 0 || static_cast<std::size_t>(rank) >= kMostRanks)
    return std::nullopt;
  return rank;
}

std::string word_of(const PlainJson& json) {
  return json.is_string() ? json.get<std::string>() : json.dump();
}

// "[25]", or "[25] [3, 4]" of several tensors.
std::string list_of(const PlainJson& entry, const char* key) {
  const auto found = entry.find(key);
  if (found == entry.end() || !found->is_array()) return "?";
  std::string out;
  for (const PlainJson& each : *found) out += (out.empty() ? "" : " ") + word_of(each);
  return out.empty() ? "nothing" : out;
}

std::string operation_of(const PlainJson& entry) {
  std::string name = word_of(entry.value("profiling_name", PlainJson("an unknown operation")));
  return name.substr(name.rfind(':') + 1);
}

TorchCollective collective_of(const PlainJson& entry) {
  TorchCollective out;
  out.sequence = entry.at("collective_seq_id").get<std::int64_t>();
  out.what = fmt::format("{} of {} {}", operation_of(entry), list_of(entry, "input_sizes"),
                         list_of(entry, "input_dtypes"));
  const std::string given = list_of(entry, "output_sizes");
  if (given != list_of(entry, "input_sizes") && given != "?") out.what += " to " + given;
  out.state = word_of(entry.value("state", PlainJson("unknown")));
  return out;
}

std::string group_of(const PlainJson& entry) {
  const auto named = entry.find("process_group");
  if (named == entry.end() || !named->is_array() || named->empty())
    return word_of(entry.value("pg_id", PlainJson("unknown")));
  return named->size() > 1 ? fmt::format("{} ({})", word_of((*named)[0]), word_of((*named)[1]))
                           : word_of((*named)[0]);
}

// "[0, 1]" as text, or a list of numbers.
std::vector<int> members_of(const PlainJson& dump, const std::string& group) {
  const auto groups = dump.find("pg_config");
  if (groups == dump.end() || !groups->is_object()) return {};
  const auto found = groups->find(group.substr(0, group.find(' ')));
  if (found == groups->end() || !found->is_object()) return {};
  PlainJson ranks = found->value("ranks", PlainJson());
  if (ranks.is_string()) ranks = PlainJson::parse(ranks.get<std::string>(), nullptr, false);
  std::vector<int> out;
  if (!ranks.is_array() || ranks.size() > kMostRanks) return {};
  for (const PlainJson& each : ranks)
    if (each.is_number_integer()) out.push_back(each.get<int>());
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

using Records = std::vector<const TorchGroupRecord*>;

const TorchCollective* find_collective(const TorchGroupRecord& record, std::int64_t sequence) {
  const auto found = std::lower_bound(
      record.collectives.begin(), record.collectives.end(), sequence,
      [](const TorchCollective& each, std::int64_t wanted) { return each.sequence < wanted; });
  const bool is_there = found != record.collectives.end() && found->sequence == sequence;
  return is_there ? &*found : nullptr;
}

std::int64_t first_of(const TorchGroupRecord& record) {
  return record.collectives.front().sequence;
}
std::int64_t last_of(const TorchGroupRecord& record) { return record.collectives.back().sequence; }

// The records of one process group, one of each rank, none of them empty.
class Join {
 public:
  explicit Join(Records records) : records_(std::move(records)) {}

  std::string text() {
    const std::int64_t begin = most([](const auto& each) { return first_of(each); });
    const std::int64_t end = -most([](const auto& each) { return -last_of(each); });
    tell_missing();
    if (begin > end)
      tell_gap();
    else if (!tell_difference(begin, end))
      tell(fmt::format("the collectives {} to {}, which all of these ranks recorded, are the same",
                       begin, end));
    tell_progress(end);
    tell_waits();
    return out_;
  }
  bool is_clean() const { return is_clean_; }

 private:
  template <class Value>
  std::int64_t most(const Value& value) const {
    std::int64_t out = value(*records_.front());
    for (const TorchGroupRecord* each : records_) out = std::max(out, value(*each));
    return out;
  }
  void tell(const std::string& line) { out_ += "  " + line + "\n"; }

  void tell_missing() {
    std::set<int> missing(records_.front()->members.begin(), records_.front()->members.end());
    for (const TorchGroupRecord* each : records_) missing.erase(each->rank);
    if (missing.empty()) return;
    is_clean_ = false;
    tell(fmt::format("of {} there is no record here: nobody can tell what {} did",
                     rank_list({missing.begin(), missing.end()}),
                     missing.size() == 1 ? "it" : "they"));
  }

  void tell_gap() {
    is_clean_ = false;
    const auto by_end = std::minmax_element(
        records_.begin(), records_.end(),
        [](const auto* one, const auto* other) { return last_of(*one) < last_of(*other); });
    const auto latest = std::max_element(
        records_.begin(), records_.end(),
        [](const auto* one, const auto* other) { return first_of(*one) < first_of(*other); });
    tell(fmt::format(
        "the record of rank {} ends with collective {}, and that of rank {} begins with {}: nobody "
        "can tell where they first differ",
        (*by_end.first)->rank, last_of(**by_end.first), (*latest)->rank, first_of(**latest)));
  }

  bool tell_difference(std::int64_t begin, std::int64_t end) {
    for (std::int64_t sequence = begin; sequence <= end; ++sequence) {
      std::map<std::string, std::vector<int>> sides;
      for (const TorchGroupRecord* each : records_) {
        const TorchCollective* const here = find_collective(*each, sequence);
        sides[here == nullptr ? "not in its record" : here->what].push_back(each->rank);
      }
      if (sides.size() < 2) continue;
      is_clean_ = false;
      tell(
          fmt::format("the first difference that the records show is in collective {}:", sequence));
      std::size_t shown = 0;
      for (const auto& [what, ranks] : sides)
        if (shown++ < kMostShown) tell(fmt::format("  {}: {}", rank_list(ranks), what));
      if (shown > kMostShown) tell(fmt::format("  and {} more", shown - kMostShown));
      return true;
    }
    return false;
  }

  // Who has started collectives that others have not.
  void tell_progress(std::int64_t end) {
    std::vector<int> behind;
    std::vector<int> ahead;
    for (const TorchGroupRecord* each : records_)
      (last_of(*each) > end ? ahead : behind).push_back(each->rank);
    if (ahead.empty()) return;
    is_clean_ = false;
    tell(fmt::format("the last collective that {} recorded is {}; {} went on", rank_list(behind),
                     end, rank_list(ahead)));
  }

  void tell_waits() {
    std::map<std::string, std::vector<int>> waits;
    for (const TorchGroupRecord* each : records_) {
      const auto open = std::find_if(
          each->collectives.begin(), each->collectives.end(),
          [](const TorchCollective& collective) { return collective.state != kCompleted; });
      if (open != each->collectives.end())
        waits[fmt::format("in collective {} ({}), which is {}", open->sequence, open->what,
                          open->state)]
            .push_back(each->rank);
    }
    for (const auto& [what, ranks] : waits) {
      is_clean_ = false;
      tell(fmt::format("{}: {}", rank_list(ranks), what));
    }
  }

  const Records records_;
  std::string out_;
  bool is_clean_ = true;
};

}  // namespace

bool is_torch_flight_record(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  return is_pickle(text) || (begin != std::string_view::npos && text[begin] == '{');
}

Result<std::vector<TorchGroupRecord>> read_torch_flight_record(std::string_view text,
                                                               const std::string& file) {
  PlainJson dump;
  if (is_pickle(text)) {
    Result<PlainJson> read = json_of_pickle(text);
    if (!read) return not_read(file, read.error().failure().detail);
    dump = std::move(*read);
  } else {
    dump = PlainJson::parse(text, nullptr, false);
  }
  if (!dump.is_object() || !dump.contains("entries") || !dump["entries"].is_array())
    return not_read(file, "it is no flight record: PyTorch's have a list \"entries\"");
  const std::optional<int> rank = rank_in(file);
  if (!rank)
    return not_read(file,
                    "the record does not say of which rank it is: end its name with the rank's "
                    "number, as in nccl_trace_rank_3");
  std::map<std::string, TorchGroupRecord> groups;
  try {
    for (const PlainJson& entry : dump["entries"]) {
      if (entry.value("is_p2p", false)) continue;
      TorchGroupRecord& record = groups[group_of(entry)];
      record.collectives.push_back(collective_of(entry));
    }
  } catch (const PlainJson::exception& error) {
    return not_read(file, fmt::format("an entry cannot be read: {}", error.what()));
  }
  std::vector<TorchGroupRecord> out;
  for (auto& [group, record] : groups) {
    record.rank = *rank;
    record.group = group;
    record.members = members_of(dump, group);
    std::stable_sort(
        record.collectives.begin(), record.collectives.end(),
        [](const auto& one, const auto& other) { return one.sequence < other.sequence; });
    out.push_back(std::move(record));
  }
  return out;
}

TorchDiagnosis join_torch_flight_records(std::vector<TorchGroupRecord> records) {
  std::stable_sort(records.begin(), records.end(),
                   [](const auto& one, const auto& other) { return one.rank < other.rank; });
  std::map<std::string, Records> by_group;
  for (const TorchGroupRecord& each : records) {
    Records& group = by_group[each.group];
    if (group.empty() || group.back()->rank != each.rank) group.push_back(&each);
  }
  TorchDiagnosis out;
  if (by_group.empty()) out.text = "no record has a collective\n";
  for (auto& [name, group] : by_group) {
    std::vector<int> ranks;
    for (const TorchGroupRecord* each : group) ranks.push_back(each->rank);
    Join join(std::move(group));
    out.text +=
        fmt::format("process group {}, records of {}:\n{}", name, rank_list(ranks), join.text());
    out.is_clean = out.is_clean && join.is_clean();
  }
  return out;
}

}  // namespace lockstep::properties
