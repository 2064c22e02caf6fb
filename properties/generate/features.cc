#include "properties/generate/features.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "properties/case/expression.h"
#include "properties/case/fields.h"
#include "properties/generate/between.h"
#include "properties/generate/disagreement.h"
#include "properties/generate/fault_plan.h"
#include "properties/generate/feature_collector.h"
#include "properties/generate/feature_table.h"
#include "properties/generate/interleave.h"
#include "properties/generate/membership_features.h"
#include "properties/generate/reach.h"
#include "properties/generate/user_hook.h"
#include "reference/arithmetic.h"
#include "reference/model.h"
#include "reference/model/engine.h"
#include "reference/model/power_sgd.h"
#include "reference/sparse.h"

namespace lockstep::properties {

using reference::Forward;
using reference::Mode;
using reference::Node;
using reference::Parameter;
using reference::PassKind;
using reference::Program;
using reference::RankPass;
using reference::Step;
using reference::ZeroGrad;

void FeatureCollector::sizes(const Parameter& parameter) {
  const std::uint64_t count = reference::element_count(parameter);
  const std::uint64_t world = program_.world;
  add_if(count == 0, "zero-size parameter");
  add_if(count == 1, "one-element parameter");
  add_if(count == world, "W elements");
  add_if(count == 2 * world - 1 || count == 2 * world + 1, "2W-1 or 2W+1 elements");
  const std::uint64_t line = 64 / reference::size_of(parameter.dtype);
  add_if(count == line - 1 || count == line + 1, "one element more or less than 64 bytes");
  add_if(count > 100, "more than 100 elements");
  add_if(parameter.column_major && parameter.sizes.size() > 1, "column-major parameter");
}

void FeatureCollector::complex(const Parameter& parameter) {
  if (parameter.dtype != reference::DType::kComplex64) return;
  add_if(parameter.sparse, "dtype complex64, a sparse parameter");
  add_if(parameter.column_major && parameter.sizes.size() > 1, "dtype complex64, column-major");
}

void FeatureCollector::parameters() {
  std::set<reference::DType> dtypes;
  std::size_t owners = 0;
  bool after_frozen = false;
  const std::size_t count = program_.parameters.size();
  for (std::size_t i = 0; i < count; ++i) {
    const Parameter& parameter = program_.parameters[i];
    if (!owns(i)) continue;
    dtypes.insert(parameter.dtype);
    complex(parameter);
    sizes(parameter);
    add_if(after_frozen && !parameter.frozen, "frozen parameter before one that trains");
    after_frozen = after_frozen || parameter.frozen;
    owners += trains(i) ? 1 : 0;
  }
  const Parameter& last = program_.parameters.back();
  const auto same = [&](const Parameter& other) { return other.dtype == last.dtype; };
  add_if(last.frozen && count > 1 &&
             std::count_if(program_.parameters.begin(), program_.parameters.end(), same) == 1,
         "last parameter frozen, with a dtype of its own");
  add_if(dtypes.size() > 1, "mixed dtypes");
  const std::uint32_t buckets = bucket_count(program_);
  add_if(owners > 1 && buckets == owners, "a bucket for each parameter");
  add_if(owners > 1 && buckets == 1, "one bucket for several parameters");
  add_if(buckets > 1 && buckets < owners, "several buckets of several parameters");
  const auto limits = reference::bucket_limits(program_.options);
  add_if(limits.size() > 2 && limits[2] != limits[1] && buckets > 2,
         "three bucket limits, and as many buckets");
  add_if(buckets > 1, "several buckets");
  add_if(program_.world > 2, "3 ranks or more");
  add_if(program_.world >= 5 && program_.world <= 8, "5 to 8 ranks");
  add_if(program_.world < 5, "ranks " + std::to_string(program_.world));
}

// Adds who uses what in a synced step of a dynamic program.
void FeatureCollector::use(const Step& step) {
  std::size_t trained = 0;
  std::size_t globally_unused = 0;
  bool one_rank_none = false;
  bool some_rank_any = false;
  bool disagree = false;
  std::vector<std::vector<bool>> reached;
  for (std::uint32_t rank = 0; rank < program_.world; ++rank)
    reached.push_back(reached_by(program_, pass_of(step, rank)));
  for (std::size_t i = 0; i < program_.parameters.size(); ++i) {
    if (!trains(i)) continue;
    ++trained;
    std::size_t users = 0;
    for (const auto& rank : reached) users += rank[i] ? 1 : 0;
    globally_unused += users == 0 ? 1 : 0;
    disagree = disagree || (users > 0 && users < program_.world);
  }
  for (const auto& rank : reached) {
    std::size_t used = 0;
    for (std::size_t i = 0; i < program_.parameters.size(); ++i)
      used += trains(i) && rank[i] ? 1 : 0;
    one_rank_none = one_rank_none || used == 0;
    some_rank_any = some_rank_any || used > 0;
  }
  add_if(disagree, "a parameter unused on some ranks");
  add_if(globally_unused > 0, "a parameter unused on all ranks");
  add_if(globally_unused == trained, "nothing used on any rank");
  add_if(one_rank_none && some_rank_any, "all parameters unused on one rank");
}

void FeatureCollector::dropped(const Step& step) {
  std::size_t ranks_with = 0;
  std::size_t ranks_without_kept = 0;
  for (std::uint32_t rank = 0; rank < program_.world; ++rank) {
    const RankPass& pass = pass_of(step, rank);
    ranks_with += std::any_of(pass.forwards.begin(), pass.forwards.end(),
                              [](const Forward& forward) { return forward.discard; })
                      ? 1
                      : 0;
    ranks_without_kept += keeps_a_forward(pass) ? 0 : 1;
  }
  const bool synced = step.kind == PassKind::kSynced;
  add_if(synced && ranks_without_kept == program_.world, "synced outputs dropped on all ranks");
  add_if(synced && ranks_without_kept == 0 && ranks_with > 0 && ranks_with < program_.world,
         "one more forward, dropped, on some ranks");
  add_if(step.kind == PassKind::kNoSync && ranks_without_kept > 0 &&
             ranks_without_kept < program_.world,
         "no_sync outputs dropped on some ranks");
}

void FeatureCollector::steps() {
  for (const Step& step : program_.steps) {
    if (step.kind == PassKind::kSynced && program_.options.mode == Mode::kDynamic &&
        keeps_a_forward(step.variants[0]))
      use(step);
    if (step.kind != PassKind::kNoGrad) dropped(step);
    std::size_t skips = 0;
    for (std::uint32_t rank = 0; rank < program_.world; ++rank)
      skips += pass_of(step, rank).skip ? 1 : 0;
    add_if(step.kind == PassKind::kNoGrad && skips > 0 && skips + 1 == program_.world,
           "no_grad forward on one rank alone");
    for (const RankPass& pass : step.variants) {
      if (!pass.absent) continue;
      add_if(pass.skip, "an absent rank that does nothing");
      add_if(!pass.skip && !keeps_a_forward(pass), "an absent rank that drops all outputs");
      add_if(!pass.skip && keeps_a_forward(pass), "an absent rank under no_sync");
    }
  }
  add_if(program_.steps.size() >= 4, "4 steps or more");
  add_if(program_.steps.size() < 4, "1 to 3 steps");
}

// Adds the accumulation windows: no_sync steps, and the synced step that ends their window.
void FeatureCollector::windows() {
  std::size_t length = 0;
  std::set<std::size_t> used_before;
  for (const Step& step : program_.steps) {
    std::set<std::size_t> used;
    for (std::uint32_t rank = 0; rank < program_.world; ++rank) {
      const std::vector<bool> reached = reached_by(program_, pass_of(step, rank));
      for (std::size_t i = 0; i < reached.size(); ++i)
        if (reached[i] && trains(i)) used.insert(i);
    }
    if (step.kind == PassKind::kNoGrad) continue;
    if (step.kind == PassKind::kNoSync) {
      if (step.zero_grad != ZeroGrad::kKeep) used_before.clear(), length = 0;
      used_before.insert(used.begin(), used.end());
      ++length;
      continue;
    }
    constexpr const char* kAfterNoSync[] = {
        "zero_grad to none after no_sync", "zero_grad to zeros after no_sync",
        "window kept up to its synced step", "gradients replaced after no_sync",
        "gradients swapped after no_sync"};
    add_if(length > 0, kAfterNoSync[static_cast<std::size_t>(step.zero_grad)]);
    const bool keeps =
        length > 0 && step.zero_grad == ZeroGrad::kKeep && keeps_a_forward(step.variants[0]);
    add_if(keeps && length > 1, "accumulation over 3 steps or more");
    const bool only_before = std::any_of(used_before.begin(), used_before.end(),
                                         [&](std::size_t p) { return used.count(p) == 0; });
    add_if(keeps && only_before && program_.options.mode == Mode::kDynamic,
           "a parameter used in no_sync alone");
    length = 0;
    used_before.clear();
  }
}

void FeatureCollector::nodes(const Step& step, const std::vector<Node>& list, bool in_body) {
  const bool synced = step.kind == PassKind::kSynced;
  for (const Node& node : list) {
    add_if(node.kind == Node::Kind::kScale && node.factor == 0, "zero scale");
    const Parameter& parameter = program_.parameters[node.parameter];
    add_if(node.kind == Node::Kind::kUse && node.row_major && parameter.column_major,
           "row-major gradient of a column-major parameter");
    add_if(in_body && node.kind == Node::Kind::kUse && !parameter.frozen,
           synced ? "nested backward in a synced pass" : "nested backward in a no_sync pass");
    add_if(in_body && node.kind == Node::Kind::kCheckpoint, "nested backward in a nested one");
    nodes(step, node.body, true);
  }
}

// Returns the order in which the uses of a pass were created.
std::vector<std::uint32_t> use_order(const RankPass& pass) {
  std::vector<std::uint32_t> out;
  for (const Forward& forward : pass.forwards)
    for (const Node& node : forward.nodes)
      if (node.kind == Node::Kind::kUse) out.push_back(node.parameter);
  return out;
}

// Whether the pass has an output from which no call starts.
bool misses_outputs(const RankPass& pass) {
  std::set<std::uint32_t> roots;
  if (pass.backwards.empty()) return false;
  for (const auto& call : pass.backwards) {
    if (call.roots.empty()) return false;
    roots.insert(call.roots.begin(), call.roots.end());
  }
  return roots.size() < reference::kept_outputs(pass);
}

void FeatureCollector::graphs() {
  for (const Step& step : program_.steps) {
    if (step.kind == PassKind::kNoGrad) continue;
    std::set<std::vector<std::uint32_t>> orders;
    for (std::uint32_t rank = 0; rank < program_.world; ++rank)
      orders.insert(use_order(pass_of(step, rank)));
    add_if(orders.size() > 1, "rank-asymmetric graph");
    for (const RankPass& pass : step.variants) {
      for (const Forward& forward : pass.forwards) nodes(step, forward.nodes, false);
      const auto forwards = std::count_if(pass.forwards.begin(), pass.forwards.end(),
                                          [](const Forward& forward) { return !forward.discard; });
      const bool synced = step.kind == PassKind::kSynced;
      add_if(synced && forwards > 1, "several forwards of one synced pass");
      add_if(synced && pass.backwards.size() > 1, "several backwards of one synced pass");
      add_if(pass.hold_outputs && &step != &program_.steps.back(),
             "outputs held past the next step");
      add_if(std::any_of(pass.forwards.begin(), pass.forwards.end(),
                         [](const auto& each) { return !each.discard && each.constants > 0; }),
             "an output without a graph");
      add_if(misses_outputs(pass), "an output that the loss does not reach");
      std::vector<std::uint32_t> uses = use_order(pass);
      std::sort(uses.begin(), uses.end());
      add_if(std::adjacent_find(uses.begin(), uses.end()) != uses.end(),
             "several uses of a parameter in one pass");
    }
  }
}

void FeatureCollector::faults() {
  const std::uint32_t buckets = bucket_count(program_);
  bool fatal = false;
  for (const faults::Fault& fault : case_.faults.faults) {
    fatal = fatal || !faults::is_benign(fault.kind);
    using faults::Kind;
    const bool at_operation = fault.kind == Kind::kOperationDelay ||
                              fault.kind == Kind::kOperationStall ||
                              fault.kind == Kind::kOperationError ||
                              fault.kind == Kind::kRankExit || fault.kind == Kind::kRankPause;
    const bool synced = program_.steps[fault.step].kind == PassKind::kSynced;
    add_if(at_operation && synced && fault.site == 0, "fault in the first bucket");
    add_if(at_operation && synced && buckets > 1 && fault.site + 1 == buckets,
           "fault in the last bucket");
  }
  add_if(case_.faults.faults.empty(), "no fault");
  add_if(!case_.faults.faults.empty() && !fatal, "benign faults alone");
  add_if(fatal, "a fault that ends a step");
  add_if(case_.faults.faults.size() > 1, "several faults");
}

// Adds the features of a legal static program.
void FeatureCollector::static_graph() {
  std::vector<std::uint32_t> owners;
  for (std::uint32_t i = 0; i < program_.parameters.size(); ++i)
    owners.push_back(trains(i) ? i : reference::kNotTrained);
  for (std::uint32_t i = 0; i < program_.parameters.size(); ++i)
    if (!owns(i)) owners[i] = owners[reference::owner_of(program_, i)];
  std::size_t synced = 0;
  for (const Step& step : program_.steps) {
    if (step.kind != PassKind::kSynced || !keeps_a_forward(step.variants[0])) continue;
    ++synced;
    std::set<std::vector<bool>> reached;
    for (const RankPass& pass : step.variants) {
      add_if(synced == 1 && pass.keep_outputs && misses_outputs(pass),
             "static: the first pass leaves outputs");
      add_if(synced > 1 && pass.backwards.size() > 1, "static: a later pass of several backwards");
      reached.insert(reached_by(program_, pass));
      std::vector<std::uint32_t> hooks(program_.parameters.size(), 0);
      for (std::uint32_t call = 0; call < reference::call_count(pass); ++call)
        for (const reference::AutogradHook& hook : reference::run_backward(owners, pass, call))
          ++hooks[hook.parameter];
      add_if(std::any_of(hooks.begin(), hooks.end(), [](std::uint32_t n) { return n > 1; }),
             "static: several hooks of a parameter in one pass");
    }
    add_if(reached.size() > 1, "static: other parameters used on other ranks");
  }
  add_if(synced > 1, "legal static program, 2 synced steps or more");
}

void FeatureCollector::views(const reference::Expectation& expected) {
  bool before = false;  // a gradient lies in its bucket
  const bool swaps = !reference::swapped_gradients(program_).empty();
  for (std::size_t s = 0; s < program_.steps.size(); ++s) {
    const Step& step = program_.steps[s];
    const bool synced = step.kind == PassKind::kSynced && keeps_a_forward(step.variants[0]);
    add_if(before && synced && step.zero_grad == ZeroGrad::kKeep,
           "views: gradients kept until the next synced step");
    add_if(before && synced && step.zero_grad == ZeroGrad::kFill,
           "views: gradients filled with zeros until the next synced step");
    add_if(before && synced && step.zero_grad == ZeroGrad::kReplace,
           "views: gradients replaced before a synced step");
    add_if(before && synced && step.zero_grad == ZeroGrad::kSwap && swaps,
           "views: gradients swapped before a synced step");
    add_if(before && step.kind == PassKind::kNoSync && step.zero_grad != ZeroGrad::kUndefine,
           "views: no_sync adds to a view");
    bool any = false;
    for (const auto& rank : expected.steps[s].ranks) {
      for (const auto& gradient : rank.gradients) {
        any = any || gradient.in_bucket;
        add_if(synced && gradient.in_bucket && gradient.untouched,
               "views: a stale gradient that no rank uses");
      }
    }
    before = any && !expected.steps[s].any_error;
  }
}

void FeatureCollector::rebuilds(const reference::Expectation& expected) {
  for (std::size_t s = 0; s < program_.steps.size(); ++s) {
    const auto& collectives = expected.steps[s].collectives;
    if (std::none_of(collectives.begin(), collectives.end(), [](const auto& each) {
          return each.op == reference::ExpectedCollective::Op::kBroadcastOrder;
        }))
      continue;
    const Step& step = program_.steps[s];
    add_if(true, "buckets rebuilt");
    add_if(program_.options.views && step.zero_grad != ZeroGrad::kUndefine,
           "buckets rebuilt, gradients as views that are kept");
    add_if(!keeps_a_forward(step.variants[0]),
           "buckets rebuilt in a step whose outputs are dropped");
  }
}

void FeatureCollector::hooks(const reference::Expectation& expected) {
  const reference::Hook hook = program_.options.hook;
  if (hook == reference::Hook::kNone) return;
  std::size_t reduced = 0;
  bool is_rebuilt = false;
  for (const auto& step : expected.steps) {
    reduced += step.is_reduced && !step.any_error ? 1 : 0;
    is_rebuilt = is_rebuilt || step.layout > 0;
  }
  if (reduced == 0) return;
  add_if(true, "hook");
  add_if(true, std::string("hook ") + fields::name_of(hook));
  for (const auto& bucket : expected.buckets) {
    const bool compresses = reference::wire_dtype(hook, bucket.dtype) != bucket.dtype;
    add_if(compresses, "hook: compresses a dtype");
    const bool can = hook == reference::Hook::kFloat16 || hook == reference::Hook::kBFloat16;
    add_if(can && !compresses, "hook: leaves a dtype as it is");
  }
  if (hook == reference::Hook::kPowerSgd) power_sgd(expected, reduced, is_rebuilt);
  add_if(is_rebuilt, "hook: buckets rebuilt");
  add_if(hook == reference::Hook::kElsewhere && program_.options.views && reduced >= 3,
         "hook: a result elsewhere, gradients as views, 3 synced steps or more");
  find_user_hook_features(case_, found_);
}

void FeatureCollector::power_sgd(const reference::Expectation& expected, std::size_t reduced,
                                 bool is_rebuilt) {
  bool has_matrix = false;
  bool is_mixed = false;
  for (const auto& bucket : expected.buckets) {
    std::size_t matrices = 0;
    for (const std::uint32_t parameter : bucket.parameters)
      if (!bucket.sparse &&
          reference::power_matrix(program_.parameters[parameter], program_.options.power_sgd_rank)
                  .factors > 0)
        ++matrices;
    has_matrix = has_matrix || matrices > 0;
    is_mixed = is_mixed || (matrices > 0 && matrices < bucket.parameters.size());
  }
  add_if(has_matrix && reduced >= 2, "power_sgd: a matrix, 2 synced steps or more");
  add_if(is_mixed, "power_sgd: a bucket of matrices and others");
  add_if(has_matrix && is_rebuilt, "power_sgd: a matrix, buckets rebuilt");
}

// Adds the features of sparse gradients (S1).
void FeatureCollector::sparse(const reference::Expectation& expected) {
  std::size_t dense = 0;
  std::size_t sparse = 0;
  for (std::size_t i = 0; i < program_.parameters.size(); ++i) {
    const Parameter& parameter = program_.parameters[i];
    if (trains(i)) ++(parameter.sparse ? sparse : dense);
    add_if(parameter.sparse && !owns(i), "sparse: a shared parameter");
    add_if(parameter.sparse && parameter.ignored, "sparse: an ignored parameter");
  }
  if (sparse == 0) return;
  add_if(true, "sparse");
  add_if(true, "sparse parameter");
  add_if(program_.world > 1, "sparse parameter, 2 ranks or more");
  add_if(dense == 0, "sparse parameters alone");
  add_if(dense > 0, "sparse parameters and others");
  using Op = reference::ExpectedCollective::Op;
  for (std::size_t s = 0; s < expected.steps.size(); ++s) {
    const auto& collectives = expected.steps[s].collectives;
    const auto gathers =
        std::count_if(collectives.begin(), collectives.end(),
                      [](const auto& each) { return each.op == Op::kGatherSparse; });
    add_if(gathers == 1, "sparse: a pass without rows");
    add_if(gathers > 1 && sparse == 1, "sparse: a pass with rows");
    if (gathers > 1 && sparse == 1) uneven_rows(program_.steps[s]);
  }
}

// Adds whether some ranks look rows up while others look up none.
void FeatureCollector::uneven_rows(const Step& step) {
  std::set<bool> looks_up;
  for (std::uint32_t rank = 0; rank < program_.world; ++rank) {
    bool any = false;
    const auto look = [&](const Node& node) {
      const Parameter& parameter = program_.parameters[node.parameter % program_.parameters.size()];
      if (node.kind != Node::Kind::kUse || !parameter.sparse) return;
      const reference::Use use{step.key, node.key, node.entries};
      any = any || !reference::entries_of(program_, parameter, rank, use, 1).rows.empty();
    };
    for (const Forward& forward : pass_of(step, rank).forwards)
      std::for_each(forward.nodes.begin(), forward.nodes.end(), look);
    looks_up.insert(any);
  }
  add_if(looks_up.size() > 1, "sparse: a rank without rows in a pass that has some");
}

// Adds what the rows of the fields name. What a communication hook does (S4) counts only if it
// reduces something.
void FeatureCollector::rows() {
  const bool has_hook = found_.count("hook") > 0;
  fields::visit_fields(case_, [&](const auto& field, const auto& record) {
    const fields::Row& row = field.row;
    if (!has_hook && std::string_view(row.clause) == "S4") return;
    if (row.feature != nullptr) add_if(fields::is_set(field, record), row.feature);
    using T = std::remove_cvref_t<decltype(field.get(record))>;
    if constexpr (std::is_enum_v<T>) {
      const fields::Value& each = fields::value_of(field.get(record));
      if (each.feature != nullptr) add_if(true, each.feature);
      if (row.each != nullptr) add_if(true, std::string(row.each) + each.name);
    }
  });
  const reference::Replicated& options = program_.options;
  add_if(options.hook != reference::Hook::kNone, "a hook");
  add_if(options.rebuild, "a rebuild asked for");
  add_if(options.launch == reference::Launch::kAfterBackward && !options.own_group,
         "after backward, on the first group");
}

// Whether some outputs outlive this backward call, whatever they lead to.
bool outlives(const RankPass& pass, std::uint32_t call) {
  const std::uint32_t calls = reference::call_count(pass);
  if (call >= calls) return false;  // the call is check_complete()
  const auto is_constant = [](const Forward& each) { return !each.discard && each.constants > 0; };
  return call + 1 < calls || (pass.keep_outputs && (misses_outputs(pass) ||
                                                    std::any_of(pass.forwards.begin(),
                                                                pass.forwards.end(), is_constant)));
}

void FeatureCollector::errors() {
  const auto expected = reference::run(program_, reference::Contract::lockstep());
  bool any = false;
  for (const auto& step : expected.steps) {
    any = any || step.any_error;
    const auto number = static_cast<std::size_t>(&step - expected.steps.data());
    for (std::uint32_t r = 0; r < step.ranks.size(); ++r) {
      const auto& rank = step.ranks[r];
      add_if(rank.error == reference::Error::kIncomplete, "error: incomplete (P5)");
      add_if(rank.error == reference::Error::kIncomplete &&
                 outlives(pass_of(program_.steps[number], r), rank.error_call),
             "error: incomplete (P5), though outputs are left");
      add_if(rank.error == reference::Error::kReadyTwice, "error: ready twice (P6)");
      add_if(rank.error == reference::Error::kSecondBackward, "error: second backward (P7)");
      add_if(rank.error == reference::Error::kUsageChanged, "error: usage changed (P11)");
      add_if(rank.error == reference::Error::kRequiresGrad, "error: gradient requires grad (P16)");
      add_if(
          program_.options.mode == Mode::kStatic && (rank.error == reference::Error::kReadyTwice ||
                                                     rank.error == reference::Error::kIncomplete),
          "error: not the graph of the first pass (P11)");
    }
  }
  if (!any && program_.options.mode == Mode::kStatic) static_graph();
  if (program_.options.views) views(expected);
  rebuilds(expected);
  hooks(expected);
  rows();
  add_if(any, "an error of its own");
  add_if(!any && case_.environment.leaves_at_once && expected.buckets.back().count == 0,
         "ranks leave at once, no elements in the last bucket");
  sparse(expected);
  find_membership_features(case_, expected, found_);
  add_if(!any, "legal program");
  add_if(!any && found_.count("several backwards of one synced pass") > 0 &&
             program_.options.mode == Mode::kPlain,
         "legal disjoint losses");
}

FeatureSet features_of(const Case& value) {
  std::set<std::string> found = FeatureCollector(value).found();
  for (const std::string& name : reach_features(value)) found.insert(name);
  for (const std::string& name : interleaved_features(value)) found.insert(name);
  for (const std::string& name : between_features(value)) found.insert(name);
  find_disagreement_features(value, found);
  if (has_long_pause(value)) found.insert("a pause of a second or more");
  FeatureSet set;
  const FeatureTable& table = feature_table();
  for (std::size_t f = 0; f < table.names.size(); ++f) set[f] = found.count(table.names[f]) > 0;
  for (const FeatureTable::Pair& pair : table.pairs)
    set[pair.index] = found.count(pair.first) > 0 && found.count(pair.second) > 0;
  return set;
}

}  // namespace lockstep::properties
