#include "properties/cli/component.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "properties/case/case_json.h"
#include "properties/case/nearest.h"
#include "properties/cli/fuzz.h"
#include "properties/cli/interrupt.h"
#include "properties/cli/output.h"
#include "properties/components/search.h"
#include "properties/process/shell_word.h"
#include "properties/report/failure_report.h"

namespace lockstep::properties {
namespace {

using components::Component;
using components::FailedSituation;
using components::SearchResult;
using Clock = std::chrono::steady_clock;

std::string list_components() {
  std::string text = "The parts of Lockstep that are fuzzed by themselves:\n";
  for (const Component& each : components::components(false))
    text += fmt::format("  {:<14} {}\n", each.name, each.what);
  return text + "Run one, several, or all: lockstep component NAME... --seed N --time T\n";
}

// Finds the components by their names.
Result<std::vector<const Component*>> chosen(const ComponentOptions& options, bool is_seeded) {
  std::vector<const Component*> found;
  for (const std::string& name : options.names) {
    if (name == "all") {
      for (const Component& each : components::components(is_seeded)) found.push_back(&each);
      continue;
    }
    const Component* const component = components::find_component(name, is_seeded);
    if (component == nullptr) {
      std::vector<std::string_view> names;
      for (const Component& each : components::components(is_seeded)) names.push_back(each.name);
      return failed(Status(Code::kInvalidArgument,
                           fmt::format("there is no component '{}': give all, or some of {}", name,
                                       fmt::join(names, ", "))));
    }
    found.push_back(component);
  }
  return found;
}

std::string replay_command(const ComponentOptions& options, const Component& component,
                           const FailedSituation& failed) {
  std::string command = fmt::format("{} component {}", shell_word(options.program), component.name);
  if (options.subject != "reducer") command += " --subject " + shell_word(options.subject);
  return command +
         fmt::format(" --choices {}", failed.choices.empty()
                                          ? "0"
                                          : fmt::format("{}", fmt::join(failed.choices, ",")));
}

std::string describe(const ComponentOptions& options, const Component& component,
                     const FailedSituation& failed) {
  return fmt::format(
      "FAILED: component {}: {}\n{}\nsituation {} of seed {}; {} choices, {} after {} runs to make "
      "it smaller\nreplay: {}\n",
      component.name, name_of(failed.verdict.failing), failed.verdict.message, failed.index,
      options.seed, failed.first_count, failed.choices.size(), failed.runs,
      replay_command(options, component, failed));
}

// Judges the one situation that the choices make.
int replay(const ComponentOptions& options, const Component& component) {
  std::vector<std::uint32_t> numbers = options.choices;
  const Result<Verdict> verdict = components::judge_apart(component, numbers);
  if (!verdict) return complain(verdict.error());
  if (verdict->ok()) {
    tell(fmt::format("component {}: nothing is wrong\n", component.name));
    return 0;
  }
  tell(fmt::format("FAILED: component {}: {}\n{}\n", component.name, name_of(verdict->failing),
                   verdict->message));
  return static_cast<int>(verdict->failing);
}

struct Searched {
  const Component* component = nullptr;
  SearchResult result;
};

std::string json_of(const ComponentOptions& options, const std::vector<Searched>& all) {
  nlohmann::ordered_json list = nlohmann::json::array();
  std::uint64_t situations = 0;
  for (const Searched& each : all) {
    nlohmann::ordered_json one{{"component", each.component->name},
                               {"situations", each.result.situations}};
    situations += each.result.situations;
    if (each.result.failed) {
      one["failing"] = name_of(each.result.failed->verdict.failing);
      one["message"] = each.result.failed->verdict.message;
      one["index"] = each.result.failed->index;
      one["choices"] = each.result.failed->choices;
    }
    list.push_back(std::move(one));
  }
  return nlohmann::ordered_json{{"situations", situations},
                                {"seed", options.seed},
                                {"subject", options.subject},
                                {"commit", kCommit},
                                {"components", std::move(list)}}
             .dump(2, ' ', false, nlohmann::json::error_handler_t::replace) +
         "\n";
}

}  // namespace

int run_component(const ComponentOptions& options) {
  if (options.names.empty()) {
    tell_reference(list_components());
    return 0;
  }
  Result<Subject> subject = find_subject(options.subject);
  if (!subject) return complain(subject.error());
  const bool is_seeded = subject->kind == Subject::Kind::kSeeded;
  if (!is_seeded && subject->kind != Subject::Kind::kProduction)
    return complain("--subject: components are parts of Lockstep: give reducer, or seeded:ID");
  if (const Status status = open_subject(*subject); !status.ok()) return complain(status);
  const auto list = chosen(options, is_seeded);
  if (!list) return complain(list.error());
  if (options.has_choices && list->size() != 1)
    return complain("--choices: they are the choices of one component: name it");
  watch_for_interrupt();
  if (options.has_choices) return replay(options, *list->front());

  components::SearchOptions search;
  search.seed = options.seed;
  if (options.situations > 0) search.most = options.situations;
  search.is_interrupted = interrupted;
  const double share = options.seconds / static_cast<double>(list->size());
  search.seconds = share;
  std::vector<Searched> all;
  std::uint64_t situations = 0;
  int code = 0;
  const Clock::time_point begin = Clock::now();
  for (const Component* const component : *list) {
    Result<SearchResult> result = components::search(*component, search);
    if (!result) return complain(result.error());
    situations += result->situations;
    if (result->failed) {
      if (code == 0) code = static_cast<int>(result->failed->verdict.failing);
      tell(describe(options, *component, *result->failed));
    }
    all.push_back({component, std::move(*result)});
    if (interrupted()) break;
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  const auto failures = std::count_if(
      all.begin(), all.end(), [](const Searched& each) { return each.result.failed.has_value(); });
  tell(fmt::format("{} component{}, {} situations in {:.1f} s, seed {}: {} failed\n", all.size(),
                   all.size() == 1 ? "" : "s", situations, seconds, options.seed, failures));
  if (!options.json.empty())
    if (const Status status = write_file(options.json, json_of(options, all)); !status.ok())
      return complain(status);
  return interrupted() && code == 0 ? kInterrupted : code;
}

}  // namespace lockstep::properties
