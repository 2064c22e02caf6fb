#include "benchmarks/nccl_versions/conformance_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "reducer/comm/nccl/nccl_api.h"
#include "reducer/comm/nccl/nccl_functions.h"

namespace lockstep::benchmarks {
namespace {

constexpr const char* kConfig = "ncclConfig_t";

// The sections, in the order of the report.
constexpr const char* kTable = "functions of nccl_api.h";
constexpr const char* kOthers = "other functions";
constexpr const char* kStructures = "structures";
constexpr const char* kFields = "fields of ncclConfig_t";
constexpr const char* kPlugins = "plug-in tables";
constexpr const char* kLookups = "lookups in a plug-in";
constexpr const char* kCalls = "calls without a device";
constexpr const char* kEnvironment = "environment";

struct OurField {
  const char* name;
  std::size_t offset;
  std::size_t size;
};

#define OUR_FIELD(name) \
  { #name, offsetof(NcclConfig, name), sizeof(NcclConfig::name) }
constexpr OurField kOurFields[] = {
    OUR_FIELD(size),
    OUR_FIELD(magic),
    OUR_FIELD(version),
    OUR_FIELD(blocking),
    OUR_FIELD(cgaClusterSize),
    OUR_FIELD(minCTAs),
    OUR_FIELD(maxCTAs),
    OUR_FIELD(netName),
    OUR_FIELD(splitShare),
    OUR_FIELD(trafficClass),
    OUR_FIELD(commName),
    OUR_FIELD(collnetEnable),
    OUR_FIELD(CTAPolicy),
    OUR_FIELD(shrinkShare),
    OUR_FIELD(nvlsCTAs),
    OUR_FIELD(nChannelsPerNetPeer),
    OUR_FIELD(nvlinkCentricSched),
    OUR_FIELD(graphUsageMode),
    OUR_FIELD(numRmaCtx),
    OUR_FIELD(maxP2pPeers),
    OUR_FIELD(graphStreamOrdering),
    OUR_FIELD(launchOrderImplicit),
    OUR_FIELD(numRmaSig),
    OUR_FIELD(rmaEagerInit),
    OUR_FIELD(hostCftMode),
    OUR_FIELD(nvlsHostMode),
};
#undef OUR_FIELD

std::int64_t our_value(const NcclConfig& config, const OurField& field) {
  const char* const from = reinterpret_cast<const char*>(&config) + field.offset;
  if (field.size == sizeof(int)) {
    int value = 0;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  std::int64_t value = 0;
  std::memcpy(&value, from, sizeof value);
  return value;
}

std::string text_of(std::int64_t value) {
  if (value == INT_MIN) return "undefined";
  if (static_cast<std::uint32_t>(value) == kNcclConfigMagic) return "0xcafebeef";
  return std::to_string(value);
}

// The fields of a library of this version that say nothing about the version itself.
bool differs_by_nature(const std::string& field) { return field == "size" || field == "version"; }

const HeaderStructure* structure_of(const NcclColumn& column, const std::string& name) {
  for (const HeaderStructure& one : column.header.structures)
    if (one.name == name) return &one;
  return nullptr;
}

const char* name_of_result(int result) {
  static constexpr const char* kNames[] = {
      "ncclSuccess",       "ncclUnhandledCudaError", "ncclSystemError",
      "ncclInternalError", "ncclInvalidArgument",    "ncclInvalidUsage",
      "ncclRemoteError",   "ncclInProgress",         "ncclTimeout"};
  const bool is_known = result >= 0 && static_cast<std::size_t>(result) < std::size(kNames);
  return is_known ? kNames[result] : "a result that is not known";
}

std::string outcome_of(const CallProbe& call) {
  if (!call.is_there) return kAbsent;
  return call.child.is_fine() ? name_of_result(call.result) : call.child.describe();
}

bool is_in_table(const std::string& function) {
  const auto names = nccl_functions();
  return std::any_of(names.begin(), names.end(),
                     [&](const NcclFunctionName& one) { return function == one.name; });
}

bool exports(const NcclColumn& column, const std::string& function) {
  const std::vector<std::string>& names = column.library.exports;
  return std::find(names.begin(), names.end(), function) != names.end();
}

// "v8 v7 v6*": the tables of this kind that were asked for, in order, with a star where it was
// found.
std::string asked_text(const PluginProbe& probe, const std::string& kind) {
  if (!probe.is_possible) return "not known: the library has no symbols";
  if (!probe.child.is_fine()) return probe.child.describe();
  std::string text;
  for (const auto& [name, is_found] : probe.asked) {
    if (!name.starts_with(kind + "_")) continue;
    text += (text.empty() ? "" : " ") + name.substr(kind.size() + 1) + (is_found ? "*" : "");
  }
  return text.empty() ? kAbsent : text;
}

std::string network_text(const PluginProbe& probe) {
  if (!probe.is_possible || !probe.child.is_fine()) return asked_text(probe, "");
  if (probe.result != 0) return name_of_result(probe.result);
  return probe.network.empty() ? "none" : probe.network;
}

void add_lookups(const LibraryProbe& library, std::map<std::string, std::string>& facts) {
  struct Plugin {
    const char* name;
    const PluginProbe& probe;
  };
  for (const auto& [name, probe] :
       {Plugin{"empty plug-in", library.empty_plugin}, Plugin{"our plug-in", library.own_plugin}}) {
    std::set<std::string> kinds = {"ncclNetPlugin"};
    for (const auto& [table, is_found] : probe.asked)
      if (const std::size_t end = table.rfind("_v"); end != std::string::npos)
        kinds.insert(table.substr(0, end));
    for (const std::string& kind : kinds)
      facts[fmt::format("{}: {}", name, kind)] = asked_text(probe, kind);
    facts[fmt::format("{}: network", name)] = network_text(probe);
  }
}

// Calls that are known to end the process. Lockstep makes none of them.
struct KnownEnd {
  const char* function;
  int first;
  int last;
};
constexpr int kAndNewer = INT_MAX;
constexpr KnownEnd kKnownEnds[] = {
    // The range for NVTX reads the communicator before it is checked (init.cc of these releases).
    {"ncclCommSplit, null", 22304, 22403},
    // ncclCommInitChildComm() does so (init.cc); 2.32.3 was called.
    {"ncclCommShrink, null", 22703, kAndNewer},
};

bool is_known_end(const std::string& function, int version) {
  return std::any_of(std::begin(kKnownEnds), std::end(kKnownEnds), [&](const KnownEnd& one) {
    return function == one.function && version >= one.first && version <= one.last;
  });
}

void check_functions(const NcclColumn& column, std::vector<std::string>& problems) {
  const int version = column.library.version;
  for (const NcclFunctionName& one : nccl_functions()) {
    const bool is_expected = version >= one.since;
    if (exports(column, one.name) == is_expected) continue;
    problems.push_back(fmt::format("{}: nccl_api.h has {} since {}, and the library {} it",
                                   column.name, one.name, nccl_version_text(one.since),
                                   is_expected ? "lacks" : "has"));
  }
}

void check_field(const NcclColumn& column, const HeaderField& field, const NcclConfig& ours,
                 std::vector<std::string>& problems) {
  const auto found = std::find_if(std::begin(kOurFields), std::end(kOurFields),
                                  [&](const OurField& one) { return field.name == one.name; });
  const auto wrong = [&](const std::string& what) {
    problems.push_back(
        fmt::format("{}: the field {} of {} {}", column.name, field.name, kConfig, what));
  };
  if (found == std::end(kOurFields)) return wrong("is not known to nccl_api.h");
  if (found->offset != field.offset || found->size != field.size)
    wrong(fmt::format("is at {} with {} bytes in the header, at {} with {} bytes in nccl_api.h",
                      field.offset, field.size, found->offset, found->size));
  else if (field.initial && *field.initial != our_value(ours, *found))
    wrong(fmt::format("begins as {} in the header, as {} in nccl_api.h", text_of(*field.initial),
                      text_of(our_value(ours, *found))));
}

void check_structures(const NcclColumn& column, std::vector<std::string>& problems) {
  const auto wrong = [&](const std::string& what) {
    problems.push_back(column.name + ": " + what);
  };
  const HeaderStructure* const id = structure_of(column, "ncclUniqueId");
  if (id == nullptr || id->size != sizeof(NcclUniqueId))
    wrong(fmt::format("ncclUniqueId has {} bytes in the header, {} in nccl_api.h",
                      id == nullptr ? 0 : id->size, sizeof(NcclUniqueId)));
  const HeaderStructure* const config = structure_of(column, kConfig);
  if (config == nullptr) return wrong("the header has no ncclConfig_t");
  const NcclConfig ours = make_nccl_config(column.library.version);
  if (ours.size != config->size)
    wrong(fmt::format("ncclConfig_t has {} bytes in the header, {} in nccl_api.h", config->size,
                      ours.size));
  for (const HeaderField& field : config->fields) check_field(column, field, ours, problems);
}

void check_plugin(const NcclColumn& column, const std::string& own_network,
                  std::vector<std::string>& problems) {
  const PluginProbe& probe = column.library.own_plugin;
  const std::string network = network_text(probe);
  if (!probe.is_possible || network == own_network) return;
  problems.push_back(
      fmt::format("{}: with our plug-in the network is '{}', and not '{}' (tables looked up: {})",
                  column.name, network, own_network, asked_text(probe, "ncclNetPlugin")));
}

std::string escaped(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2)
    text.insert(at, "\\");
  return text;
}

std::string value_in(const NcclFacts& facts, const std::string& section, const std::string& name) {
  const auto found = facts.find(section);
  if (found == facts.end()) return kAbsent;
  const auto value = found->second.find(name);
  return value == found->second.end() ? kAbsent : value->second;
}

std::string head_of(const std::vector<NcclColumn>& columns) {
  std::string out = "| |";
  for (const NcclColumn& column : columns) out += " " + column.name + " |";
  out += "\n|---|";
  for (std::size_t i = 0; i < columns.size(); ++i) out += "---|";
  return out + "\n";
}

// A table of a section, with a column a version. `only_changes` leaves out what all have alike.
std::string table_of(const std::string& section, const std::vector<NcclColumn>& columns,
                     const std::vector<NcclFacts>& facts, bool only_changes) {
  std::set<std::string> names;
  for (const NcclFacts& one : facts)
    if (const auto found = one.find(section); found != one.end())
      for (const auto& [name, value] : found->second) names.insert(name);
  std::string out = head_of(columns);
  std::size_t alike = 0;
  for (const std::string& name : names) {
    std::set<std::string> values;
    std::string row = fmt::format("| {} |", escaped(name));
    for (const NcclFacts& one : facts) {
      values.insert(value_in(one, section, name));
      row += " " + escaped(value_in(one, section, name)) + " |";
    }
    if (only_changes && values.size() == 1)
      ++alike;
    else
      out += row + "\n";
  }
  if (alike != 0) out += fmt::format("\n{} more are alike in all versions.\n", alike);
  return fmt::format("## {}{}\n\n{}\n", static_cast<char>(std::toupper(section[0])),
                     section.substr(1), out);
}

std::string summary_of(const std::vector<NcclColumn>& columns) {
  struct Row {
    const char* name;
    std::string (*value)(const NcclColumn&);
  };
  static constexpr Row kRows[] = {
      {"ncclGetVersion", [](const NcclColumn& c) { return std::to_string(c.library.version); }},
      {"version of the header",
       [](const NcclColumn& c) { return std::to_string(c.header.version); }},
      {"functions exported",
       [](const NcclColumn& c) { return std::to_string(c.library.exports.size()); }},
      {"bytes of ncclConfig_t",
       [](const NcclColumn& c) {
         const HeaderStructure* const config = structure_of(c, kConfig);
         return config == nullptr ? std::string(kAbsent) : std::to_string(config->size);
       }},
      {"fields of ncclConfig_t",
       [](const NcclColumn& c) {
         const HeaderStructure* const config = structure_of(c, kConfig);
         return config == nullptr ? std::string(kAbsent) : std::to_string(config->fields.size());
       }},
      {"environment names",
       [](const NcclColumn& c) { return std::to_string(c.library.environment.size()); }},
      {"network with our plug-in",
       [](const NcclColumn& c) { return network_text(c.library.own_plugin); }},
      {"slowest call without a device, ms",
       [](const NcclColumn& c) {
         double slowest = 0;
         for (const CallProbe& call : c.library.calls)
           slowest = std::max(slowest, call.child.milliseconds);
         return fmt::format("{:.0f}", slowest);
       }},
  };
  std::string out = head_of(columns);
  for (const Row& row : kRows) {
    out += fmt::format("| {} |", row.name);
    for (const NcclColumn& column : columns) out += " " + row.value(column) + " |";
    out += "\n";
  }
  return out + "\n";
}

std::string list_of(const std::vector<std::string>& lines) {
  if (lines.empty()) return "None.\n\n";
  std::string out;
  for (const std::string& line : lines) out += "- " + line + "\n";
  return out + "\n";
}

nlohmann::json json_of(const NcclColumn& column, const NcclFacts& facts) {
  nlohmann::json out = {{"name", column.name},
                        {"version", column.library.version},
                        {"facts", facts},
                        {"environment", column.library.environment},
                        {"exports", column.library.exports}};
  for (const CallProbe& call : column.library.calls) {
    if (!call.is_there) continue;
    out["calls"].push_back({{"call", call.function},
                            {"outcome", outcome_of(call)},
                            {"error", call.error},
                            {"milliseconds", call.child.milliseconds},
                            {"limit_seconds", call.child.limit_seconds}});
  }
  return out;
}

}  // namespace

NcclFacts facts_of(const NcclColumn& column) {
  NcclFacts facts;
  for (const NcclFunctionName& one : nccl_functions())
    facts[kTable][one.name] = exports(column, one.name) ? "yes" : kAbsent;
  for (const std::string& name : column.header.functions)
    if (!is_in_table(name)) facts[kOthers][name] = "declared alone";
  for (const std::string& name : column.library.exports) {
    if (is_in_table(name)) continue;
    std::string& value = facts[kOthers][name];
    value = value.empty() ? "exported alone" : "yes";
  }
  for (const HeaderStructure& one : column.header.structures)
    facts[kStructures][one.name] = fmt::format("{} bytes, {} fields", one.size, one.fields.size());
  if (const HeaderStructure* const config = structure_of(column, kConfig)) {
    for (const HeaderField& field : config->fields) {
      const bool says_nothing = !field.initial || differs_by_nature(field.name);
      facts[kFields][field.name] =
          fmt::format("at {}", field.offset) + (says_nothing ? "" : ", " + text_of(*field.initial));
    }
  }
  for (const std::string& name : column.library.plugin_tables) facts[kPlugins][name] = "yes";
  add_lookups(column.library, facts[kLookups]);
  for (const CallProbe& call : column.library.calls)
    facts[kCalls][call.function] = outcome_of(call);
  for (const std::string& name : column.library.environment) facts[kEnvironment][name] = "yes";
  return facts;
}

std::vector<std::string> problems_of(const NcclColumn& column, const std::string& own_network) {
  const LibraryProbe& library = column.library;
  if (!library.refusal.empty()) return {column.name + ": " + library.refusal};
  std::vector<std::string> problems;
  const auto wrong = [&](const std::string& what) {
    problems.push_back(column.name + ": " + what);
  };
  const std::string version = nccl_version_text(library.version);
  if (version != column.name.substr(0, column.name.find('-')))
    wrong(fmt::format("the library in this folder is {}", version));
  if (library.version != column.header.version)
    wrong(fmt::format("the library is {}, and its header {}", version,
                      nccl_version_text(column.header.version)));
  check_functions(column, problems);
  check_structures(column, problems);
  check_plugin(column, own_network, problems);
  for (const CallProbe& call : library.calls) {
    const bool is_fine = !call.is_there || call.child.is_fine();
    if (!is_fine && !is_known_end(call.function, library.version))
      wrong(fmt::format("{} {}", call.function, call.child.describe()));
  }
  return problems;
}

std::vector<std::string> differences(const NcclColumn& before, const NcclColumn& after) {
  const NcclFacts old_facts = facts_of(before);
  const NcclFacts new_facts = facts_of(after);
  std::vector<std::string> lines;
  for (const char* const section :
       {kTable, kOthers, kStructures, kFields, kPlugins, kLookups, kCalls, kEnvironment}) {
    std::set<std::string> names;
    for (const NcclFacts* facts : {&old_facts, &new_facts})
      if (const auto found = facts->find(section); found != facts->end())
        for (const auto& [name, value] : found->second) names.insert(name);
    // What changes alike is one line.
    std::map<std::pair<std::string, std::string>, std::string> changes;
    for (const std::string& name : names) {
      const std::string was = value_in(old_facts, section, name);
      const std::string is = value_in(new_facts, section, name);
      if (was == is) continue;
      std::string& list = changes[{was, is}];
      list += (list.empty() ? "" : "; ") + name;
    }
    for (const auto& [values, list] : changes)
      lines.push_back(fmt::format("{} -> {}, {}: `{}` -> `{}`: {}", before.name, after.name,
                                  section, values.first, values.second, list));
  }
  return lines;
}

NcclReport report_on(const std::vector<NcclColumn>& columns, const std::string& own_network) {
  NcclReport report;
  std::vector<NcclFacts> facts;
  nlohmann::json json;
  std::vector<std::string> changes;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    facts.push_back(facts_of(columns[i]));
    json["versions"].push_back(json_of(columns[i], facts.back()));
    for (std::string& line : problems_of(columns[i], own_network))
      report.problems.push_back(std::move(line));
    if (i == 0) continue;
    for (std::string& line : differences(columns[i - 1], columns[i]))
      changes.push_back(std::move(line));
  }
  json["problems"] = report.problems;
  json["differences"] = changes;
  report.json = json.dump(1) + "\n";
  report.markdown = summary_of(columns) + "## What contradicts Lockstep's assumptions\n\n" +
                    list_of(report.problems);
  for (const char* const section : {kTable, kStructures, kFields, kPlugins, kLookups, kCalls})
    report.markdown += table_of(section, columns, facts, false);
  for (const char* const section : {kOthers, kEnvironment})
    report.markdown += table_of(section, columns, facts, true);
  report.markdown += "## Differences from the version before\n\n" + list_of(changes);
  while (report.markdown.ends_with("\n\n")) report.markdown.pop_back();
  return report;
}

}  // namespace lockstep::benchmarks
