#include "properties/case/describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

#include "properties/case/calls.h"
#include "properties/case/expression.h"
#include "properties/case/fields.h"
#include "properties/case/switched.h"
#include "properties/case/words.h"

namespace lockstep::properties {
namespace {

using fields::Place;
using reference::Forward;
using reference::Parameter;
using reference::PassKind;
using reference::Program;
using reference::RankPass;
using reference::Replicated;
using reference::Step;

constexpr std::size_t kLineLength = 100;
constexpr std::size_t kMaxExpression = 70;
constexpr std::size_t kMaxListed = 6;

// Adds the items with `separator` between them, on as few lines as they need. Later lines are
// indented to the first line's text.
void add_wrapped(std::vector<std::string>& lines, const std::string& label,
                 const std::vector<std::string>& items, const std::string& separator) {
  std::string line = label;
  bool first = true;
  for (const std::string& item : items) {
    if (!first) line += separator;
    if (!first && line.size() + 1 + item.size() > kLineLength) {
      lines.push_back(line);
      line = std::string(label.size(), ' ') + item;
    } else {
      line += (first ? "" : " ") + item;
    }
    first = false;
  }
  lines.push_back(line);
}

// The value of a field as text. That of a pinned layout is the order of its parameters.
template <typename AnyField, typename Record>
std::string value_text(const Program& program, const AnyField& field, const Record& record) {
  using T = std::remove_cvref_t<decltype(field.get(record))>;
  if constexpr (std::is_enum_v<T>) {
    return fields::name_of(field.get(record));
  } else if constexpr (std::is_integral_v<T>) {
    const std::string_view name = field.name;
    if (name == "pinned")
      return fmt::format("{}", fmt::join(reference::construction_order(program), " p"));
    if (name.ends_with("_fails_on")) return fmt::format("{}", field.get(record) - 1);  // a rank
    return name.ends_with("_bytes") ? bytes(field.get(record))
                                    : fmt::format("{}", field.get(record));
  }
  return {};
}

// What the row of a field says of its value.
template <typename AnyField, typename Record>
std::string phrase_of(const Program& program, const AnyField& field, const Record& record) {
  const fields::Row& row = field.row;
  using T = std::remove_cvref_t<decltype(field.get(record))>;
  std::string out;
  if constexpr (std::is_enum_v<T>) out = fields::value_of(field.get(record)).phrase;
  if constexpr (!fields::IsRecord<T>)
    if (fields::is_set(field, record)) out += row.phrase;
  if (out.find("{}") == std::string::npos) return out;
  return fmt::format(fmt::runtime(out), value_text(program, field, record));
}

template <auto member, typename Record>
std::string phrase_of(const Program& program, const Record& record) {
  return phrase_of(program, fields::field_of<member>(), record);
}

// The phrases of all fields of a record that its description has in this place.
template <typename Record>
std::string phrases(const Program& program, const Record& record, fields::Place place) {
  std::string out;
  fields::for_each<Record>([&](const auto& field) {
    if (field.row.place == place) out += phrase_of(program, field, record);
  });
  return out;
}

std::string describe_parameter(const Program& program, std::size_t index) {
  const Parameter& parameter = program.parameters[index];
  std::string out = fmt::format("p{} ", index);
  if (parameter.shared_with > 0) return out + fmt::format("is p{}", index - parameter.shared_with);
  if (parameter.copy_of > 0)
    return out + fmt::format("is a replica's copy of p{}", index - parameter.copy_of) +
           phrases(program, parameter, Place::kLast);
  out += fields::name_of(parameter.dtype);
  if (!parameter.sizes.empty()) out += fmt::format("[{}]", fmt::join(parameter.sizes, ", "));
  out += phrases(program, parameter, Place::kFirst);
  if (parameter.permuted != 0)
    out += fmt::format(" in memory order ({})",
                       fmt::join(reference::dimensions_in_memory(parameter), " "));
  for (const Place place : {Place::kSecond, Place::kUsual, Place::kLast})
    out += phrases(program, parameter, place);
  return out;
}

void describe_parameters(const Program& program, std::vector<std::string>& lines) {
  constexpr std::size_t kShown = 16;
  std::vector<std::string> items;
  const std::size_t count = program.parameters.size();
  for (std::size_t i = 0; i < std::min(count, kShown); ++i)
    items.push_back(describe_parameter(program, i));
  if (count > kShown) items.push_back(fmt::format("and {} more", count - kShown));
  add_wrapped(lines, count == 1 ? "parameter " : "parameters ", items, ",");
}

// Describes which ranks have inputs for how many steps (S2).
void describe_join(const Program& program, std::vector<std::string>& lines) {
  if (program.options.join == reference::Join::kNone) return;
  std::vector<std::string> items;
  for (std::uint32_t rank = 0; rank < program.steps_per_rank.size(); ++rank) {
    if (program.rejoin_step == 0 && program.steps_per_rank[rank] >= program.steps.size()) continue;
    items.push_back(
        fmt::format("rank {} for {}", rank, plural(program.steps_per_rank[rank], "step")));
  }
  if (items.empty()) items.emplace_back("all ranks for all steps");
  add_wrapped(lines, "inputs: ", items, ",");
  lines.back() += phrase_of<&Replicated::join>(program, program.options) +
                  phrase_of<&Program::rejoin_step>(program, program) +
                  phrase_of<&Replicated::early_termination>(program, program.options);
}

void describe_state(const Program& program, std::vector<std::string>& lines) {
  const Replicated& options = program.options;
  if (options.with_values) lines.push_back(phrase_of<&Replicated::with_values>(program, options));
  if (program.buffers.empty()) return;
  std::vector<std::string> items;
  for (std::size_t i = 0; i < program.buffers.size(); ++i) {
    const reference::Buffer& buffer = program.buffers[i];
    std::string item = fmt::format("b{} {}", i, fields::name_of(buffer.dtype));
    if (buffer.copy_of > 0)
      item = fmt::format("b{} is a replica's copy of b{}", i, i - buffer.copy_of);
    if (buffer.copy_of == 0 && !buffer.sizes.empty())
      item += fmt::format("[{}]", fmt::join(buffer.sizes, ", "));
    items.push_back(item + phrases(program, buffer, Place::kUsual));
  }
  add_wrapped(lines, "buffers ", items, ",");
  lines.back() += options.keep_buffers
                      ? phrase_of<&Replicated::keep_buffers>(program, options)
                      : fmt::format("; broadcast in chunks of {}", bytes(options.chunk_bytes));
}

std::string values_of(const Program& program) {
  const std::string name = fields::name_of(program.values);
  return program.headroom == 0 ? name : fmt::format("{}/2^{}", name, program.headroom);
}

std::string header(const Case& value) {
  const Program& program = value.program;
  const Replicated& options = program.options;
  const auto at = [&](Place place) { return phrases(program, options, place); };
  const bool has_hook = options.hook != reference::Hook::kNone;
  std::vector<std::string> limits;
  for (const std::uint64_t limit : reference::bucket_limits(options))
    limits.push_back(bytes(limit));
  std::string reducers;
  if (reference::reducer_count(program) > 1)
    reducers = fmt::format("; two reducers, {}",
                           options.group_each ? "each on groups of its own" : "on the same groups");
  reducers += phrase_of<&Program::recreate_before_step>(program, program);
  return fmt::format(
      "{}, {} mode, {} order{}, {} values, buckets of {}{}{}{}{}{}{}",
      plural(program.world, "rank"), fields::name_of(options.mode), fields::name_of(options.order),
      at(Place::kFirst), values_of(program), fmt::join(limits, ", then "), at(Place::kThird),
      has_hook ? fmt::format("; hook {}", fields::name_of(options.hook)) : "", at(Place::kFourth),
      at(Place::kUsual) + phrases(program, value.torch, Place::kUsual), reducers, at(Place::kLast));
}

std::string step_label(const Step& step, std::size_t index) {
  std::string out = fmt::format("step {} ({}", index, fields::name_of(step.kind));
  if (index > 0)  // before the first step there is no gradient
    out += fmt::format(", {}", fields::value_of(step.zero_grad).phrase);
  return out + "): ";
}

std::string held_text(const reference::Backward& call) {
  const std::string held = call.held_synced ? "it holds of the complete pass of the step before"
                                            : "it holds from the step before";
  if (call.roots.empty()) return "what " + held;
  return fmt::format("output {} of those that {} (modulo their number)",
                     fmt::join(call.roots, ", "), held);
}

// Describes the backward calls over the outputs of the forwards that are not dropped: "backward of
// p0(p1), then of p2".
std::string describe_calls(const RankPass& pass, const std::vector<std::string>& outputs) {
  std::vector<std::string> calls;
  const auto all = fmt::format("{}", fmt::join(outputs, ", "));
  for (const reference::Backward& call : pass.backwards) {
    if (call.held) {
      calls.push_back(held_text(call));
      continue;
    }
    std::vector<std::size_t> roots;
    for (const std::uint32_t root : call.roots) {
      const std::size_t index = root % outputs.size();
      if (std::find(roots.begin(), roots.end(), index) == roots.end()) roots.push_back(index);
    }
    std::vector<std::string> names;
    for (const std::size_t root : roots) names.push_back(outputs[root]);
    calls.push_back((call.with_constants ? "constants, " : "") +
                    (call.roots.empty() ? all : fmt::format("{}", fmt::join(names, ", "))));
  }
  if (calls.empty()) calls.push_back(all);
  std::string out = "backward of " + fmt::format("{}", fmt::join(calls, ", then of "));
  // Outputs from which no call starts are listed, too.
  std::vector<bool> used(outputs.size(), pass.backwards.empty());
  for (const reference::Backward& call : pass.backwards) {
    if (call.held) continue;
    if (call.roots.empty()) used.assign(outputs.size(), true);
    for (const std::uint32_t root : call.roots) used[root % outputs.size()] = true;
  }
  std::vector<std::string> left;
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (!used[i]) left.push_back(outputs[i]);
  if (!left.empty()) out += fmt::format(", not of output {}", fmt::join(left, ", "));
  return out;
}

// The order of calls, if not all forwards come first, or if some are local, or if the rank calls
// something else between them.
std::string describe_order(const Program& program, const Step& step, const RankPass& pass) {
  using Kind = Call::Kind;
  std::vector<std::string> order;
  bool is_usual = true;
  std::uint32_t forwards = 0;
  for (const Call& call : calls_of(program.options, kind_of(step, pass), pass)) {
    const bool is_first = forwards == 0;
    switch (call.kind) {
      case Kind::kForward:
        ++forwards;
        is_usual = is_usual && !pass.forwards[call.number].local;
        order.push_back(fmt::format("forward {}{}", call.number,
                                    pass.forwards[call.number].local ? " (no_sync)" : ""));
        continue;
      case Kind::kBackward:
        is_usual = is_usual && forwards == pass.forwards.size();
        order.push_back(fmt::format("backward {}", call.number));
        continue;
      case Kind::kSyncGradients:
      case Kind::kCheckComplete:
        continue;
      case Kind::kZeroGrad:
        if (is_first) continue;
        order.emplace_back("zero_grad");
        break;
      case Kind::kEvaluate:
        order.emplace_back("forward 0 without gradients");
        break;
      case Kind::kOptimizerStep:
        order.emplace_back("optimizer step");
        break;
      case Kind::kDrop:
        order.emplace_back("drop of the outputs that no further backward needs");
        break;
    }
    is_usual = false;
  }
  return is_usual ? std::string() : fmt::format("; in the order {}", fmt::join(order, ", "));
}

std::string unused_text(const Program& program, const RankPass& pass) {
  const std::vector<bool> reached = reached_by(program, pass);
  std::vector<std::string> unused;
  std::size_t trains = 0;
  for (std::size_t i = 0; i < program.parameters.size(); ++i) {
    const Parameter& parameter = program.parameters[i];
    if (parameter.frozen || parameter.shared_with > 0) continue;
    ++trains;
    if (!reached[i]) unused.push_back(fmt::format("p{}", i));
  }
  if (unused.empty()) return {};
  if (unused.size() == trains) return "; uses no parameter";
  const std::size_t count = unused.size();
  if (count > kMaxListed) unused.resize(kMaxListed);
  std::string out = fmt::format("; does not use {}", fmt::join(unused, ", "));
  if (count > kMaxListed) out += fmt::format(" and {} more", count - kMaxListed);
  return out;
}

std::string describe_pass(const Program& program, const Step& step, const RankPass& pass) {
  const PassKind kind = kind_of(step, pass);
  const std::string absent = phrase_of<&RankPass::absent>(program, pass);
  if (kind == PassKind::kNoGrad)
    return pass.skip ? absent + "nothing"
                     : plural(pass.forwards.size(), "forward") + " without gradients";
  std::vector<std::string> parts;
  std::vector<std::string> outputs;
  std::vector<std::string> where;
  char next_name = 'a';
  std::size_t kept = 0;
  std::size_t constants = 0;
  for (const Forward& forward : pass.forwards) {
    const ForwardText text = text_of(program, forward, next_name, kMaxExpression);
    if (!text.where.empty()) where.push_back(text.where);
    if (forward.discard) {
      parts.push_back(fmt::format("drops {}", fmt::join(text.outputs, ", ")));
      continue;
    }
    ++kept;
    constants += forward.constants;
    outputs.insert(outputs.end(), text.outputs.begin(), text.outputs.end());
  }
  if (kept > 1) parts.push_back(plural(kept, "forward"));
  if (kept > 0) parts.push_back(describe_calls(pass, outputs));
  if (kept == 0) parts.emplace_back("no backward");
  std::string out = absent + (kind != step.kind ? "under no_sync, " : "") +
                    fields::value_of(pass.recompute).phrase +
                    fmt::format("{}", fmt::join(parts, ", "));
  if (!where.empty()) out += fmt::format(" where {}", fmt::join(where, ", "));
  if (constants > 0) out += "; " + plural(constants, "constant output");
  out += phrases(program, pass, Place::kUsual);
  if (kept > 0) out += describe_order(program, step, pass);
  if (kept > 0) out += unused_text(program, pass);
  return out;
}

// Returns "every rank", "rank 1" or "ranks 0, 2": the ranks that use one of the variants in `same`.
std::string ranks_text(std::uint32_t world, const std::vector<bool>& same) {
  std::vector<std::uint32_t> ranks;
  for (std::uint32_t rank = 0; rank < world; ++rank)
    if (same[rank % same.size()]) ranks.push_back(rank);
  if (ranks.size() == world) return world == 1 ? "rank 0" : "every rank";
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

std::vector<std::string> describe_step(const Program& program, std::size_t index) {
  const Step& step = program.steps[index];
  const std::size_t count = step.variants.size();
  std::vector<std::string> texts;
  for (const RankPass& pass : step.variants) texts.push_back(describe_pass(program, step, pass));
  std::vector<std::string> groups;
  std::size_t length = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (std::find(texts.begin(), texts.begin() + static_cast<std::ptrdiff_t>(i), texts[i]) !=
        texts.begin() + static_cast<std::ptrdiff_t>(i))
      continue;
    std::vector<bool> same;
    for (const std::string& text : texts) same.push_back(text == texts[i]);
    groups.push_back(ranks_text(program.world, same) + ": " + texts[i]);
    length += groups.back().size() + 2;
  }
  const std::string label = step_label(step, index);
  if (groups.size() == 1 || label.size() + length <= kLineLength)
    return {label + fmt::format("{}", fmt::join(groups, "; "))};
  std::vector<std::string> lines{label.substr(0, label.size() - 1)};
  for (const std::string& group : groups) lines.push_back("  " + group);
  return lines;
}

std::string summarize_step(const Program& program, std::size_t index) {
  const Step& step = program.steps[index];
  std::size_t nodes = 0;
  std::size_t calls = 0;
  std::size_t forwards = 0;
  for (const RankPass& pass : step.variants) {
    for (const Forward& forward : pass.forwards) nodes += node_count(forward.nodes);
    forwards = std::max(forwards, pass.forwards.size());
    calls = std::max(calls, std::max<std::size_t>(1, pass.backwards.size()));
  }
  std::string out = step_label(step, index);
  out += step.variants.size() == 1 ? "every rank the same"
                                   : fmt::format("{} different passes", step.variants.size());
  out += ", " + plural(nodes, "node");
  if (forwards > 1) out += fmt::format(", up to {} forwards", forwards);
  if (calls > 1 && step.kind != PassKind::kNoGrad)
    out += fmt::format(", up to {} backwards", calls);
  return out;
}

std::string disagreement_text(const Program& program) {
  const reference::ConstructionDisagreement& own = program.disagreement;
  const std::optional<std::uint32_t> changed = reference::changed_parameter(program);
  const std::string parameter = changed ? fmt::format("p{}", *changed) : "";
  const std::string what = fmt::format(fmt::runtime(fields::value_of(own.kind).phrase), parameter);
  return fmt::format("refused first: {}, where rank {} has {}",
                     own.at_reset ? "the first reset" : "the construction", own.rank, what);
}

std::string bad_number_text(const reference::BadNumber& bad) {
  const std::string where =
      bad.element == 0 ? "as a factor" : fmt::format("at value {}", bad.element - 1);
  return fmt::format("bad number: in step {} rank {} sends p{} {} {}", bad.step, bad.rank,
                     bad.parameter, fields::value_of(bad.kind).phrase, where);
}

std::string schedule_text(const Case& value) {
  const Schedule& schedule = value.schedule;
  std::string out = fmt::format("schedule: {}", fields::value_of(schedule.policy).phrase);
  if (schedule.seed != 0) out += fmt::format(", seed {}", schedule.seed);
  if (!schedule.deviations.empty()) {
    std::vector<std::string> items;
    const std::size_t count = schedule.deviations.size();
    for (std::size_t i = 0; i < std::min(count, kMaxListed); ++i)
      items.push_back(fmt::format("fiber {} at choice {}", schedule.deviations[i].fiber,
                                  schedule.deviations[i].choice));
    if (count > kMaxListed) items.push_back(fmt::format("{} more", count - kMaxListed));
    out += fmt::format(", but {} (a fiber is a thread of a rank)", fmt::join(items, ", "));
  }
  if (never_times_out(value)) return out + "; waits never time out";
  const auto timeout_ms = value.timeout_ms == 0 ? kDefaultTimeoutMs : value.timeout_ms;
  return out + fmt::format("; timeout {} ms", timeout_ms);
}

// Adds what the rows say of the environment, unless it is the simplest one.
void describe_environment(const Case& value, std::vector<std::string>& lines) {
  std::vector<std::string> items;
  fields::for_each<Environment>([&](const auto& field) {
    std::string phrase = phrase_of(value.program, field, value.environment);
    if (!phrase.empty()) items.push_back(std::move(phrase));
  });
  if (!items.empty()) add_wrapped(lines, "environment: ", items, ";");
}

// Describes each step in full if there is room, and otherwise in one line; steps beyond that are
// counted.
void add_steps(const Program& program, std::size_t room, std::vector<std::string>& lines) {
  std::vector<std::string> full;
  for (std::size_t i = 0; i < program.steps.size(); ++i)
    for (std::string& line : describe_step(program, i)) full.push_back(std::move(line));
  if (full.size() > room) {
    full.clear();
    for (std::size_t i = 0; i < program.steps.size(); ++i)
      full.push_back(summarize_step(program, i));
  }
  if (full.size() > room) {
    const std::size_t left = full.size() - (room - 1);
    full.resize(room - 1);
    full.push_back("and " + plural(left, "more step"));
  }
  lines.insert(lines.end(), full.begin(), full.end());
}

}  // namespace

std::string describe(const Case& given) {
  Case value = given;
  normalize(value);
  const Program& program = value.program;
  std::vector<std::string> lines{header(value)};
  describe_parameters(program, lines);
  describe_state(program, lines);
  describe_join(program, lines);
  std::vector<std::string> last;
  const std::size_t faults = value.faults.faults.size();
  for (std::size_t i = 0; i < std::min(faults, kMaxListed); ++i)
    last.push_back("fault: " + describe(value.faults.faults[i]));
  if (faults > kMaxListed) last.push_back("and " + plural(faults - kMaxListed, "more fault"));
  if (program.disagreement.kind != reference::DisagreementKind::kNone)
    last.push_back(disagreement_text(program));
  if (program.bad_number.kind != reference::BadNumber::Kind::kNone)
    last.push_back(bad_number_text(program.bad_number));
  describe_environment(value, last);
  last.push_back(schedule_text(value));
  if (const std::string with = describe_switch(value); !with.empty())
    last.push_back(fmt::format("second run: with {}; the same must come out", with));
  if (program.steps.empty()) lines.emplace_back("no steps: construction alone");
  add_steps(program, kMaxDescriptionLines - lines.size() - last.size(), lines);
  lines.insert(lines.end(), last.begin(), last.end());
  return fmt::format("{}\n", fmt::join(lines, "\n"));
}

}  // namespace lockstep::properties
