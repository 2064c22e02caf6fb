#include "properties/report/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

namespace lockstep::properties {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint32_t kSteps = 0;  // thread number; collectives follow

struct Placed {
  const TraceEvent* event = nullptr;
  std::uint32_t thread = kSteps;
};

// Slices of one thread must be disjoint or nested. Collectives of a rank may overlap in any way, so
// each takes the first thread that is free when it starts.
std::vector<Placed> place(const std::vector<TraceEvent>& events) {
  std::vector<Placed> placed;
  for (const TraceEvent& event : events) placed.push_back({&event, kSteps});
  std::stable_sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) {
    return std::tie(a.event->rank, a.event->begin_us) < std::tie(b.event->rank, b.event->begin_us);
  });
  std::map<std::uint32_t, std::vector<std::uint64_t>> busy_until;  // by rank, then thread
  for (Placed& each : placed) {
    if (each.event->sequence == kNone) continue;
    auto& threads = busy_until[each.event->rank];
    std::size_t thread = 0;
    while (thread < threads.size() && threads[thread] > each.event->begin_us) ++thread;
    if (thread == threads.size()) threads.push_back(0);
    threads[thread] = each.event->end_us;
    each.thread = static_cast<std::uint32_t>(thread) + 1;
  }
  return placed;
}

Json metadata(const char* name, std::uint32_t rank, std::uint32_t thread, const char* key,
              Json value) {
  return {{"ph", "M"},
          {"name", name},
          {"pid", rank},
          {"tid", thread},
          {"args", {{key, std::move(value)}}}};
}

void add_names(const std::vector<Placed>& placed, Json& out) {
  const bool counts_events = std::any_of(placed.begin(), placed.end(),
                                         [](const Placed& each) { return each.event->is_hook; });
  const char* const clock = counts_events ? " (no time passed: times count events)" : "";
  std::map<std::uint32_t, std::uint32_t> threads;  // by rank
  for (const Placed& each : placed) {
    std::uint32_t& count = threads[each.event->rank];
    count = std::max(count, each.thread + 1);
  }
  for (const auto& [rank, count] : threads) {
    out.push_back(
        metadata("process_name", rank, kSteps, "name", fmt::format("rank {}{}", rank, clock)));
    out.push_back(metadata("process_sort_index", rank, kSteps, "sort_index", rank));
    for (std::uint32_t thread = 0; thread < count; ++thread)
      out.push_back(metadata("thread_name", rank, thread, "name",
                             thread == kSteps ? "steps" : "collectives"));
  }
}

Json slice(const Placed& each) {
  const TraceEvent& event = *each.event;
  Json args = {{"step", event.step}};
  if (event.sequence != kNone) args["sequence"] = event.sequence;
  return {{"ph", "X"},
          {"name", event.name},
          {"cat", event.is_hook             ? "hook"
                  : event.sequence == kNone ? "step"
                                            : "collective"},
          {"pid", event.rank},
          {"tid", each.thread},
          {"ts", event.begin_us},
          {"dur", event.end_us >= event.begin_us ? event.end_us - event.begin_us : 0},
          {"args", args}};
}

Json arrow(const char* phase, std::int64_t id, const Placed& at) {
  Json out = {
      {"ph", phase},           {"id", id},         {"name", "collective"},    {"cat", "collective"},
      {"pid", at.event->rank}, {"tid", at.thread}, {"ts", at.event->begin_us}};
  if (*phase == 'f') out["bp"] = "e";  // ends at the enclosing slice, not at the next one
  return out;
}

// Adds arrows from the rank that started first, because an arrow must not go back in time.
void add_arrows(const std::vector<Placed>& placed, Json& out) {
  std::map<std::pair<std::uint32_t, std::int64_t>, std::vector<const Placed*>> collectives;
  for (const Placed& each : placed)
    if (each.event->sequence != kNone)
      collectives[{each.event->generation, each.event->sequence}].push_back(&each);
  std::int64_t id = 0;
  for (auto& [_, ranks] : collectives) {
    std::stable_sort(ranks.begin(), ranks.end(), [](const Placed* a, const Placed* b) {
      return a->event->begin_us < b->event->begin_us;
    });
    for (std::size_t i = 1; i < ranks.size(); ++i) {
      ++id;
      out.push_back(arrow("s", id, *ranks[0]));
      out.push_back(arrow("f", id, *ranks[i]));
    }
  }
}

}  // namespace

std::string chrome_trace(const Outcome& outcome) {
  const std::vector<Placed> placed = place(outcome.events);
  Json events = Json::array();
  add_names(placed, events);
  for (const Placed& each : placed) events.push_back(slice(each));
  add_arrows(placed, events);
  const Json trace = {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
  return trace.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::properties
