#include "properties/campaign/part_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "properties/generate/features.h"

namespace lockstep::properties {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kLogVersion = 1;

std::string line_of(const char* name, Json value) {
  Json json = Json::object();
  json[name] = std::move(value);
  // A message may quote bytes of a subject, and invalid UTF-8 must not prevent the line.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Features are named by their numbers, which the campaign's plan lists: a line has hundreds.
Json numbered(const std::map<std::string, std::uint64_t>& by_name) {
  Json out = Json::array();
  for (std::size_t f = 0; f < feature_count(); ++f)
    if (const auto found = by_name.find(feature_name(f)); found != by_name.end())
      out.push_back({f, found->second});
  return out;
}

Json json_of(const Size& size) {
  return {size.ranks,   size.steps,           size.parameters, size.faults,
          size.records, size.random_schedule, size.deviations, size.detail};
}

Json json_of(const std::map<std::string, SmallCase>& smallest) {
  Json out = Json::array();
  for (std::size_t f = 0; f < feature_count(); ++f)
    if (const auto found = smallest.find(feature_name(f)); found != smallest.end())
      out.push_back({f, found->second.index, json_of(found->second.size)});
  return out;
}

const char* feature_at(const Json& record) {
  const std::size_t feature = record.at(0);
  if (feature >= feature_count()) throw Json::out_of_range::create(401, "a feature", &record);
  return feature_name(feature);
}

std::map<std::string, std::uint64_t> named(const Json& records) {
  std::map<std::string, std::uint64_t> out;
  for (const Json& record : records) out[feature_at(record)] = record.at(1);
  return out;
}

std::map<std::string, SmallCase> smallest_of(const Json& records) {
  std::map<std::string, SmallCase> out;
  for (const Json& record : records) {
    const Json& size = record.at(2);
    out[feature_at(record)] = {record.at(1),
                               {size.at(0), size.at(1), size.at(2), size.at(3), size.at(4),
                                size.at(5), size.at(6), size.at(7)}};
  }
  return out;
}

Json json_of(const RunReport& run) {
  Json json = {{"seconds", run.seconds},
               {"cases", run.counts.cases},
               {"ok", run.counts.ok},
               {"faulted_ok", run.counts.faulted_ok},
               {"pairs", run.determinism.pairs},
               {"mismatches", run.determinism.mismatches},
               {"errors", run.counts.errors},
               {"coverage_cases", run.coverage.cases},
               {"coverage", numbered(run.coverage.features)},
               {"faults_fired", run.coverage.faults_fired},
               {"unspecified", run.counts.unspecified}};
  if (!run.against.empty()) {
    json["compared"] = run.compared.programs;
    json["compared_whole"] = run.compared.whole;
  }
  if (!run.planted.id.empty())
    json["planted"] = {run.planted.id, run.planted.seen.reached, run.planted.seen.triggered};
  return json;
}

RunReport run_of(const Json& json) {
  RunReport run;
  run.seconds = json.at("seconds");
  run.counts.cases = json.at("cases");
  run.counts.ok = json.at("ok");
  run.counts.faulted_ok = json.at("faulted_ok");
  run.determinism.pairs = json.at("pairs");
  run.determinism.mismatches = json.at("mismatches");
  run.counts.errors = json.at("errors");
  run.coverage.cases = json.at("coverage_cases");
  run.coverage.features = named(json.at("coverage"));
  run.coverage.faults_fired = json.at("faults_fired").get<std::map<std::string, std::uint64_t>>();
  run.counts.unspecified = json.at("unspecified").get<std::map<std::string, std::uint64_t>>();
  run.compared.programs = json.value("compared", std::uint64_t{0});
  run.compared.whole = json.value("compared_whole", std::uint64_t{0});
  if (const auto planted = json.find("planted"); planted != json.end()) {
    run.planted.id = planted->at(0);
    run.planted.seen = {planted->at(1), planted->at(2)};
  }
  return run;
}

BlockRecord block_of(const Json& json) {
  BlockRecord block{json.at("begin"), json.at("end"), json.at("at"), run_of(json), {}};
  block.smallest = smallest_of(json.at("smallest"));
  if (block.begin >= block.end) throw Json::out_of_range::create(401, "an empty block", &json);
  return block;
}

FailureRecord failure_of(const Json& json) {
  return {json.at("index"),
          json.at("at"),
          static_cast<Failing>(json.at("exit_code").get<int>()),
          json.at("oracle"),
          json.at("message"),
          json.at("fired"),
          json.value("might_succeed", false)};
}

ShrunkRecord shrunk_of(const Json& json) {
  return {json.at("index"), json.at("reproduced"), json.at("case_file")};
}

// Adds what the line says, an object of one record.
void add(const Json& json, PartHistory& history) {
  const Json::const_iterator record = json.begin();
  const std::string& name = record.key();
  const Json& value = record.value();
  if (name == "start") {
    history.starts.push_back({value.at("at"), value.at("host"), value.at("process"),
                              value.at("jobs"), value.at("cases")});
    history.end.reset();
  } else if (name == "block") {
    history.blocks.push_back(block_of(value));
  } else if (name == "failure") {
    FailureRecord failure = failure_of(value);
    history.failures.try_emplace(failure.index, std::move(failure));
  } else if (name == "shrunk") {
    ShrunkRecord shrunk = shrunk_of(value);
    history.shrunk.insert_or_assign(shrunk.index, std::move(shrunk));
  } else if (name == "end") {
    history.end = EndRecord{value.at("at"), value.at("why")};
  } else {
    throw Json::out_of_range::create(403, "an unknown record", &json);
  }
}

// Of blocks that overlap, the one that comes first in the log stays.
void drop_repeated(PartHistory& history) {
  std::vector<BlockRecord> kept;
  for (BlockRecord& block : history.blocks) {
    const bool is_repeated = std::any_of(kept.begin(), kept.end(), [&](const BlockRecord& other) {
      return block.begin < other.end && other.begin < block.end;
    });
    if (is_repeated)
      history.repeated_cases += block.end - block.begin;
    else
      kept.push_back(std::move(block));
  }
  std::sort(kept.begin(), kept.end(),
            [](const BlockRecord& a, const BlockRecord& b) { return a.begin < b.begin; });
  history.blocks = std::move(kept);
}

Result<CampaignPart> header_of(const Json& json, const std::string& source) {
  const auto fail = [&source](const char* what) {
    return failed(Status(Code::kInvalidArgument,
                         fmt::format("{} is not the log of a part ({}): move it away, and start "
                                     "the part again",
                                     source, what)));
  };
  if (!json.is_object() || json.value("lockstep_part", 0) != kLogVersion)
    return fail("its first line has no lockstep_part of version 1");
  try {
    return CampaignPart{json.at("part"), json.at("parts")};
  } catch (const Json::exception&) {
    return fail("its first line does not name the part");
  }
}

}  // namespace

std::string to_line(const CampaignPart& part) {
  return Json{{"lockstep_part", kLogVersion}, {"part", part.number}, {"parts", part.count}}.dump() +
         "\n";
}

std::string to_line(const StartRecord& record) {
  return line_of("start", {{"at", record.at},
                           {"host", record.host},
                           {"process", record.process},
                           {"jobs", record.jobs},
                           {"cases", record.cases}});
}

std::string to_line(const BlockRecord& record) {
  Json json = {{"begin", record.begin}, {"end", record.end}, {"at", record.at}};
  json.update(json_of(record.run));
  json["smallest"] = json_of(record.smallest);
  return line_of("block", std::move(json));
}

Verdict verdict_of(const FailureRecord& failure) {
  Verdict verdict{failure.failing, failure.oracle, failure.message};
  verdict.might_succeed = failure.might_succeed;
  return verdict;
}

std::string to_line(const FailureRecord& record) {
  return line_of("failure", {{"index", record.index},
                             {"at", record.at},
                             {"exit_code", static_cast<int>(record.failing)},
                             {"oracle", record.oracle},
                             {"message", record.message},
                             {"fired", record.fired},
                             {"might_succeed", record.might_succeed}});
}

std::string to_line(const ShrunkRecord& record) {
  return line_of("shrunk", {{"index", record.index},
                            {"reproduced", record.reproduced},
                            {"case_file", record.case_file}});
}

std::string to_line(const EndRecord& record) {
  return line_of("end", {{"at", record.at}, {"why", record.why}});
}

Result<PartHistory> history_of(const std::string& text, const std::string& source,
                               std::size_t& whole_bytes) {
  PartHistory history;
  std::size_t begin = 0;
  for (std::size_t line = 1; begin < text.size(); ++line) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    const Json json = Json::parse(text.substr(begin, end - begin), nullptr, false);
    begin = end + 1;
    if (line == 1) {
      const Result<CampaignPart> part = header_of(json, source);
      if (!part) return failed(part.error());
      history.part = *part;
      continue;
    }
    try {
      if (json.is_object() && json.size() == 1)
        add(json, history);
      else
        history.dropped_lines.push_back(line);
    } catch (const Json::exception&) {
      history.dropped_lines.push_back(line);
    }
  }
  whole_bytes = begin;
  drop_repeated(history);
  return history;
}

OpenRange first_open_range(const std::vector<BlockRecord>& blocks) {
  OpenRange range;
  for (const BlockRecord& block : blocks) {
    if (block.begin > range.begin) {
      range.end = block.begin;
      break;
    }
    range.begin = block.end;
  }
  return range;
}

std::uint64_t positions_of(const CampaignPart& part, std::uint64_t cases) {
  return cases <= part.number ? 0 : (cases - part.number - 1) / part.count + 1;
}

}  // namespace lockstep::properties
