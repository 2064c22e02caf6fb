// Fields: one table of every field of a Case, a row each. The JSON form, equality, the hash, the
// capabilities that a case needs, its description, coverage, draws that do not depend on others,
// and the shrinker all use this table, so that a new field of a record is added here and nowhere
// else. field.h says what a row holds.
//
// A record is a struct with a Table; an enum has Values. Everything else in a Case is an integer, a
// bool or a vector. This header is not for general use: only .cc files of properties/ that treat
// cases as data include it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>

#include "properties/case/case.h"
#include "properties/case/enum_values.h"
#include "properties/case/environment_fields.h"
#include "properties/case/field.h"
#include "properties/case/keeps.h"
#include "properties/case/pairs.h"

namespace lockstep::properties::fields {

using enum Capability;

constexpr std::size_t kMaxFaults = 64;
constexpr std::size_t kMaxDeviations = 100'000;

// The list of faults appears in the case itself, because a plan has nothing else.
struct FaultList {
  const char* name = "faults";
  Limits limits = {kMaxFaults, 0, -1};
  Row row = {};
  template <typename R>
  constexpr auto& get(R& record) const {
    return record.faults.faults;
  }
};

template <>
struct Table<reference::Input> {
  using R = reference::Input;
  static constexpr auto list = std::make_tuple(field("back", &R::back), field("slot", &R::slot));
};

template <>
struct Table<reference::Node> {
  using R = reference::Node;
  static constexpr auto list = std::make_tuple(
      field("key", &R::key, {.has_own_moves = true}), field("kind", &R::kind, {.each = "node "}),
      field("parameter", &R::parameter), bounded("factor", &R::factor, {0, -2, 2}),
      field("row_major", &R::row_major, {.needs = kStrides}),
      field("gaps", &R::gaps, {.needs = kStrides}),
      bounded("entries", &R::entries, {0, 0, reference::kMaxEntries}, {.clause = "S1"}),
      field("requires_grad", &R::requires_grad, {.clause = "P16", .needs = kRequiresGrad}),
      list_of("inputs", &R::inputs, reference::kMaxInputs),
      list_of("body", &R::body, reference::kMaxNodes));
};

template <>
struct Table<reference::Forward> {
  using R = reference::Forward;
  static constexpr auto list =
      std::make_tuple(field("discard", &R::discard, {.clause = "P2", .needs = kDiscard}),
                      field("local", &R::local, {.clause = "P1", .needs = kInterleaved}),
                      list_of("nodes", &R::nodes, reference::kMaxNodes),
                      list_of("outputs", &R::outputs, reference::kMaxOutputs),
                      field("constants", &R::constants, {.needs = kConstants}));
};

template <>
struct Table<reference::Backward> {
  using R = reference::Backward;
  static constexpr auto list = std::make_tuple(
      list_of("roots", &R::roots, reference::kMaxRoots),
      bounded("forwards", &R::forwards, {0, 0, reference::kMaxForwards},
              {.clause = "P1", .needs = kInterleaved}),
      field("evaluates", &R::evaluates, {.clause = "P1", .needs = kBetween}),
      field("zeroes", &R::zeroes, {.clause = "P10", .needs = kBetween}),
      field("updates", &R::updates, {.clause = "S3", .needs = kBetween}),
      field("drops", &R::drops, {.clause = "P5", .needs = kBetween}),
      field("held", &R::held, {.clause = "P1", .needs = kLaterBackward}),
      field("held_synced", &R::held_synced, {.clause = "P7", .needs = kLaterBackward}),
      field("with_constants", &R::with_constants,
            {.clause = "P5",
             .needs = kConstants,
             .feature = "a backward from outputs without a graph, too"}));
};

template <>
struct Table<reference::RankPass> {
  using R = reference::RankPass;
  static constexpr auto list =
      std::make_tuple(field("skip", &R::skip),
                      field("absent", &R::absent,
                            {.clause = "P8",
                             .needs = kAbsent,
                             .phrase = "absent: ",
                             .place = Place::kApart,
                             .feature = "an absent rank"}),
                      field("recompute", &R::recompute, {.clause = "P1", .place = Place::kApart}),
                      field("keep_outputs", &R::keep_outputs,
                            {.clause = "P5",
                             .needs = kKeepOutputs,
                             .phrase = "; keeps outputs, check_complete()",
                             .feature = "outputs kept"}),
                      field("hold_outputs", &R::hold_outputs,
                            {.clause = "P5",
                             .needs = kHoldOutputs,
                             .phrase = ", and holds them until its next step has ended"}),
                      list_of("forwards", &R::forwards, reference::kMaxForwards),
                      list_of("backwards", &R::backwards, reference::kMaxBackwards));
};

template <>
struct Table<reference::Step> {
  using R = reference::Step;
  static constexpr auto list =
      std::make_tuple(field("key", &R::key, {.has_own_moves = true}),
                      field("kind", &R::kind, {.clause = "P9", .each = "step "}),
                      field("zero_grad", &R::zero_grad, {.clause = "P10", .place = Place::kApart}),
                      list_of("variants", &R::variants, reference::kMaxWorld));
};

template <>
struct Table<reference::Parameter> {
  using R = reference::Parameter;
  static constexpr auto list = std::make_tuple(
      field("key", &R::key, {.has_own_moves = true}), field("dtype", &R::dtype, {.each = "dtype "}),
      bounded("sizes", &R::sizes, {reference::kMaxDims, 0, reference::kMaxSize},
              {.clause = "G10", .has_own_moves = true}),
      field("column_major", &R::column_major,
            {.needs = kStrides, .phrase = " column-major", .place = Place::kFirst}),
      field("permuted", &R::permuted,
            {.needs = kStrides, .feature = "permuted dimensions", .pairs = with::kViews}),
      field("frozen", &R::frozen,
            {.needs = kFrozen, .phrase = " frozen", .feature = "frozen parameter"}),
      field("ignored", &R::ignored, {.clause = "S3", .needs = kIgnored, .phrase = " ignored"}),
      field("sparse", &R::sparse,
            {.clause = "S1", .needs = kSparse, .phrase = " sparse", .place = Place::kSecond}),
      field(
          "shared_with", &R::shared_with,
          {.clause = "B6", .needs = kShared, .feature = "shared parameter", .has_own_moves = true}),
      field("copy_of", &R::copy_of, {.clause = "P15", .needs = kReplicas, .has_own_moves = true}),
      field("device", &R::device,
            {.clause = "B1",
             .needs = kTwoDevices,
             .phrase = " on device {}",
             .place = Place::kLast,
             .feature = "second device"}),
      field("reducer", &R::reducer,
            {.clause = "F7", .needs = kReducers, .phrase = " of the second reducer"}));
};

template <>
struct Table<reference::Buffer> {
  using R = reference::Buffer;
  static constexpr auto list = std::make_tuple(
      field("key", &R::key, {.has_own_moves = true}),
      field("dtype", &R::dtype, {.needs_nothing = true}),
      bounded("sizes", &R::sizes, {reference::kMaxDims, 0, reference::kMaxSize},
              {.has_own_moves = true}),
      field("column_major", &R::column_major,
            {.phrase = " column-major", .feature = "column-major buffer"}),
      field("device", &R::device, {.phrase = " on device {}"}),
      field("ignored", &R::ignored,
            {.clause = "S3", .phrase = " ignored", .feature = "ignored buffer"}),
      field("replaced", &R::replaced,
            {.phrase = " replaced by each forward", .feature = "buffer replaced by each forward"}),
      field("copy_of", &R::copy_of, {.clause = "P15", .needs = kReplicas, .has_own_moves = true}));
};

// In bytes, for parameters of mostly 4 to 160 bytes.
inline constexpr std::array<std::uint16_t, 6> kLastLimits{1, 8, 32, 64, 128, 400};
inline constexpr std::array<std::uint16_t, 3> kEarlySteps{1, 2, 3};
inline constexpr std::array<std::uint16_t, 1> kPowerSgdRanks{2};

template <>
struct Table<reference::Replicated> {
  using R = reference::Replicated;
  static constexpr auto list = std::make_tuple(
      field("mode", &R::mode,
            {.clause = "P5", .each = "mode ", .change = "the mode", .keeps = keeps::mode}),
      field("order", &R::order,
            {.clause = "G3",
             .each = "order ",
             .change = "the order of additions",
             .keeps = keeps::order,
             .keeps_errors = true}),
      field("rebuild", &R::rebuild,
            {.clause = "B2",
             .needs = kRebuild,
             .phrase = ", rebuilt in ready order",
             .place = Place::kThird,
             .change = "the rebuild",
             .keeps = keeps::rebuild}),
      field("views", &R::views,
            {.clause = "B7",
             .needs = kViews,
             .phrase = "; gradients are views of them",
             .place = Place::kThird,
             .feature = "gradients as views",
             .change = "views",
             .keeps = keeps::always,
             .keeps_errors = true}),
      field("manual_sync", &R::manual_sync,
            {.clause = "P13",
             .needs = kManualSync,
             .phrase = "; synced by hand",
             .feature = "manual sync",
             .pairs = with::kModes | with::kViews | with::kRebuilt | with::kForwards |
                      with::kBackwards | with::kError,
             .percent = 18,
             .stream = kByHand,
             .change = "manual sync",
             .keeps = keeps::always}),
      field("repeated_hooks", &R::repeated_hooks,
            {.clause = "P6",
             .needs = kRepeatedHooks,
             .phrase = "; hooks that run again count",
             .change = "repeated hooks",
             .keeps = keeps::mode}),
      field("pinned", &R::pinned,
            {.clause = "B3",
             .needs = kPinned,
             .phrase = "; layout pinned: p{}",  // the order of the parameters
             .feature = "pinned layout",
             .pairs = with::kAskedRebuild | with::kModes | with::kViews | with::kManualSync |
                      with::kError | with::kFault,
             .percent = 18,
             .stream = kByHand,
             .change = "a pinned layout",
             .keeps = keeps::layout}),
      field("launch", &R::launch,
            {.clause = "P14",
             .needs = kAfterBackward,
             .feature = "after backward",
             .pairs = with::kAskedRebuild | with::kSeveralBuckets | with::kModes | with::kViews |
                      with::kBackwards | with::kNested | with::kManualSync | with::kPinned |
                      with::kError | with::kFault,
             .percent = 18,
             .stream = kByHand,
             .change = "when buckets are launched",
             .keeps = keeps::layout}),
      field("own_group", &R::own_group,
            {.clause = "P14",
             .phrase = ", on a group of its own",
             .feature = "after backward, on a group of its own",
             .percent = 60,
             .stream = kByHand,
             .keeps = keeps::always,
             .keeps_errors = true}),
      field("hook", &R::hook,
            {.clause = "S4",
             .needs = kHooks,
             .change = "the communication hook",
             .keeps = keeps::hook}),
      field("hook_result", &R::hook_result,
            {.clause = "S4", .needs = kHookResults, .place = Place::kFourth}),
      field("hook_completion", &R::hook_completion,
            {.clause = "S4",
             .needs = kHookCalls,
             .place = Place::kFourth,
             .keeps = keeps::hook_of_user}),
      field("hook_backward", &R::hook_backward,
            {.clause = "S4",
             .needs = kHookCalls,
             .place = Place::kFourth,
             .keeps = keeps::hook_of_user}),
      bounded("power_sgd_rank", &R::power_sgd_rank, {0, 1, reference::kMaxPowerSgdRank},
              {.clause = "S4",
               .phrase = " of rank {}",
               .place = Place::kFourth,
               .feature = "power_sgd: rank 2",
               .percent = 75,
               .choices = kPowerSgdRanks,
               .change = "PowerSGD's rank"}),
      field("with_values", &R::with_values,
            {.clause = "S3",
             .needs = kState,
             .phrase = "parameters have values, equal on all ranks",
             .place = Place::kApart,
             .feature = "values of parameters"}),
      field(
          "keep_buffers", &R::keep_buffers,
          {.clause = "S3", .phrase = "; broadcast at construction alone", .place = Place::kApart}),
      field("chunk_bytes", &R::chunk_bytes,
            {.clause = "S3", .keeps = keeps::broadcasts, .keeps_errors = true}),
      field("join", &R::join,
            {.clause = "S2", .needs = kJoin, .place = Place::kApart, .keeps = keeps::even_inputs}),
      field("first_bucket_bytes", &R::first_bucket_bytes, {.clause = "B1", .keeps = keeps::layout}),
      field("bucket_bytes", &R::bucket_bytes, {.clause = "B1", .keeps = keeps::layout}),
      field("last_bucket_bytes", &R::last_bucket_bytes,
            {.clause = "B1",
             .needs = kThreeLimits,
             .percent = 40,
             .choices = kLastLimits,
             .stream = "limits",
             .keeps = keeps::layout}),
      field("verify", &R::verify,
            {.clause = "F3",
             .needs = kVerify,
             .phrase = ", verified",
             .place = Place::kFirst,
             .feature = "verified",
             .pairs = with::kSeveralBuckets | with::kModes | with::kViews | with::kRebuilt |
                      with::kHook | with::kManualSync | with::kPinned | with::kAfterBackward |
                      with::kBuffers | with::kUneven | with::kError,
             .percent = 22,
             .keeps = keeps::always,
             .keeps_errors = true}),
      field(
          "early_termination", &R::early_termination,
          {.clause = "S2", .phrase = "; raises as soon as some have none", .place = Place::kApart}),
      field("group_each", &R::group_each,
            {.clause = "F7",
             .feature = "two reducers, each on a group of its own",
             .keeps = keeps::always}),
      field("two_groups", &R::two_groups,
            {.clause = "G1",
             .needs = kTwoGroups,
             .phrase = "; ranks of even and odd numbers train apart",
             .place = Place::kLast,
             .feature = "two groups of ranks",
             .pairs = with::kEveryWay | with::kSparse | with::kBuffers | with::kReplicas |
                      with::kVerified}),
      field("fabric", &R::transport,
            {.clause = "F8",
             .needs = kGpu,
             .feature = "on a GPU",
             .pairs = with::kSeveralBuckets | with::kModes | with::kViews | with::kRebuilt |
                      with::kHook | with::kAfterBackward | with::kBuffers | with::kUneven |
                      with::kError | with::kFault,
             .change = "the transport"}));
};

template <>
struct Table<reference::ConstructionDisagreement> {
  using R = reference::ConstructionDisagreement;
  static constexpr auto list = std::make_tuple(
      field("kind", &R::kind, {.clause = "B4", .needs = kDisagreements, .place = Place::kApart}),
      field("rank", &R::rank), field("at_reset", &R::at_reset), field("pick", &R::pick),
      bounded("variant", &R::variant, {0, 0, reference::kDisagreementVariants - 1}));
};

template <>
struct Table<reference::BadNumber> {
  using R = reference::BadNumber;
  static constexpr auto list = std::make_tuple(
      field("kind", &R::kind, {.clause = "G9", .place = Place::kApart, .feature = "a bad number"}),
      field("rank", &R::rank), field("step", &R::step), field("parameter", &R::parameter),
      field("element", &R::element));
};

template <>
struct Table<reference::Program> {
  using R = reference::Program;
  static constexpr auto list = std::make_tuple(
      bounded("world", &R::world, {0, 1, reference::kMaxWorld}, {.has_own_moves = true}),
      field("key", &R::key, {.has_own_moves = true}),
      field("values", &R::values, {.clause = "G9", .each = "values "}),
      bounded("headroom", &R::headroom, {0, 0, reference::kMaxHeadroom}, {.clause = "G2"}),
      field("bad_number", &R::bad_number), field("options", &R::options),
      list_of("parameters", &R::parameters, reference::kMaxParameters),
      list_of("buffers", &R::buffers, reference::kMaxBuffers,
              {.clause = "S3",
               .needs = kState,
               .feature = "buffers",
               .pairs = with::kModes | with::kRebuilt | with::kManualSync | with::kForwards |
                        with::kError | with::kFault}),
      list_of("inputs", &R::steps_per_rank, reference::kMaxWorld, {.clause = "S2"}),
      field("second_join", &R::rejoin_step,
            {.clause = "S2", .phrase = "; and once more from step {} on", .place = Place::kApart}),
      field("renewed", &R::recreate_before_step,
            {.clause = "F5",
             .needs = kReducers,
             .phrase = "; made anew before step {}",
             .feature = "a reducer after another",
             .pairs = with::kEveryWay | with::kValues}),
      field("disagreement", &R::disagreement), list_of("steps", &R::steps, reference::kMaxSteps));
};

template <>
struct Table<faults::Fault> {
  using R = faults::Fault;
  static constexpr auto list = std::make_tuple(
      field("kind", &R::kind), field("rank", &R::rank), field("step", &R::step),
      field("site", &R::site),
      bounded("duration_us", &R::duration_us, {0, 0, faults::kMaxDurationUs}),
      field("peer", &R::peer), field("at", &R::at), field("in_reset", &R::in_reset));
};

template <>
struct Table<Schedule::Deviation> {
  using R = Schedule::Deviation;
  static constexpr auto list =
      std::make_tuple(field("choice", &R::choice), field("fiber", &R::fiber));
};

template <>
struct Table<Schedule> {
  using R = Schedule;
  static constexpr auto list = std::make_tuple(
      field("policy", &R::policy, {.each = "policy "}), field("seed", &R::seed),
      list_of("deviations", &R::deviations, kMaxDeviations, {.feature = "deviations"}));
};

// The shrinker keeps the option: without it, a case fails for another reason.
template <>
struct Table<Switch> {
  using R = Switch;
  static constexpr auto list =
      std::make_tuple(field("option", &R::option, {.has_own_moves = true}), field("to", &R::to));
};

// The options of PyTorch's reducer alone.
template <>
struct Table<TorchOptions> {
  using R = TorchOptions;
  static constexpr auto list = std::make_tuple(
      field("batched_grad_copy", &R::batched_grad_copy,
            {.clause = "G2",
             .needs = kBatchedCopy,
             .phrase = "; gradients are copied to a bucket together",
             .percent = 30,
             .change = "batched_grad_copy",
             .keeps = keeps::always,
             .keeps_errors = true}),
      field("lazy_bucket_allocation", &R::lazy_bucket_allocation,
            {.clause = "B7",
             .needs = kLazyBuckets,
             .phrase = "; buckets have memory during a backward alone",
             .percent = 30,
             .change = "lazy_bucket_allocation",
             .keeps = keeps::always,
             .keeps_errors = true}),
      field("skip_all_reduce_unused_params", &R::skip_all_reduce_unused_params,
            {.clause = "G5",
             .needs = kSkipsUnused,
             .phrase = "; buckets of unused parameters are left out",
             .percent = 50,
             .change = "skip_all_reduce_unused_params",
             .keeps = keeps::without_local_use,
             .keeps_errors = true}),
      field("finalization", &R::finalization,
            {.clause = "P4", .needs = kFinalization, .percent = 25, .keeps = keeps::finalization}),
      field("update_process_group", &R::update_process_group,
            {.clause = "F4",
             .needs = kUpdatesGroup,
             .phrase = "; another process group before step {}",
             .percent = 25,
             .choices = kEarlySteps}));
};

template <>
struct Table<Case> {
  using R = Case;
  static constexpr auto list = std::make_tuple(
      field("program", &R::program), FaultList{},
      field("schedule", &R::schedule, {.has_own_moves = true}),
      bounded("timeout_ms", &R::timeout_ms, {0, 0, kMaxTimeoutMs}, {.feature = "timeout"}),
      field("switched", &R::switched), field("environment", &R::environment),
      field("torch", &R::torch));
};

// Calls f(field, get) for the row of each option of a case, where get(case) is its record.
template <typename F>
constexpr void for_each_option(const F& f) {
  const auto replicated = [](auto& value) -> auto& { return value.program.options; };
  const auto torch = [](auto& value) -> auto& { return value.torch; };
  for_each<reference::Replicated>([&](const auto& field) { f(field, replicated); });
  for_each<TorchOptions>([&](const auto& field) { f(field, torch); });
}

// The options that a second run of the case can switch, by their names.
constexpr std::size_t kSwitchable = [] {
  std::size_t count = 0;
  for_each_option(
      [&count](const auto& field, const auto&) { count += field.row.keeps.is_set ? 1 : 0; });
  return count;
}();
template <>
struct Values<SwitchedOption> {
  static constexpr auto list = [] {
    std::array<Value, kSwitchable + 1> out{};
    std::size_t number = 0;
    out[number].name = "none";
    for_each_option([&](const auto& field, const auto&) {
      if (field.row.keeps.is_set) out[++number].name = field.name;
    });
    return out;
  }();
};

// All records. The shrinker numbers fields in this order.
using Records =
    std::tuple<Case, reference::Program, reference::Parameter, reference::Step, reference::RankPass,
               reference::Forward, reference::Node, reference::Input, reference::Backward,
               faults::Fault, reference::Buffer, reference::Replicated,
               reference::ConstructionDisagreement, reference::BadNumber, Schedule,
               Schedule::Deviation, Switch, Environment, TorchOptions>;

}  // namespace lockstep::properties::fields
