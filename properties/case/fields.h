// Fields: one table of every field of a Case, by name. The JSON form, equality, the hash and the
// shrinker all use this table, so that a new field of a record is added here and nowhere else.
//
// A record is a struct with a Table; an enum has Names. Everything else in a Case is an integer, a
// bool or a vector. This header is not for general use: only .cc files of properties/ that treat
// cases as data include it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <vector>

#include "properties/case/case.h"

namespace lockstep::properties::fields {

// The limits of a field in a case file: the most elements of a list, and the range of a number (or
// of the numbers in a list) from `least` to `most`. An index has no such range, because it is taken
// modulo.
struct Limits {
  std::size_t elements = 0;
  std::int64_t least = 0;
  std::int64_t most = -1;  // if it is below `least`, any number of the type is allowed
  constexpr bool is_bounded() const { return least <= most; }
};

// One field: get(record) returns a reference to it.
template <typename Record, typename T>
struct Field {
  const char* name;
  T Record::*member;
  Limits limits;
  template <typename R>
  constexpr auto& get(R& record) const {
    return record.*member;
  }
};

template <typename Record, typename T>
constexpr Field<Record, T> field(const char* name, T Record::*member, std::size_t elements = 0) {
  return {name, member, {elements, 0, -1}};
}

template <typename Record, typename T>
constexpr Field<Record, T> bounded(const char* name, T Record::*member, std::int64_t least,
                                   std::int64_t most, std::size_t elements = 0) {
  return {name, member, {elements, least, most}};
}

constexpr std::size_t kMaxFaults = 64;
constexpr std::size_t kMaxDeviations = 100'000;

// The list of faults appears in the case itself, because a plan has nothing else.
struct FaultList {
  const char* name = "faults";
  Limits limits = {kMaxFaults, 0, -1};
  template <typename R>
  constexpr auto& get(R& record) const {
    return record.faults.faults;
  }
};

template <typename Record>
struct Table;

template <>
struct Table<reference::Input> {
  using R = reference::Input;
  static constexpr auto list = std::make_tuple(field("back", &R::back), field("slot", &R::slot));
};

template <>
struct Table<reference::Node> {
  using R = reference::Node;
  static constexpr auto list = std::make_tuple(
      field("key", &R::key), field("kind", &R::kind), field("parameter", &R::parameter),
      bounded("factor", &R::factor, -2, 2), field("row_major", &R::row_major),
      field("gaps", &R::gaps), bounded("entries", &R::entries, 0, reference::kMaxEntries),
      field("requires_grad", &R::requires_grad), field("inputs", &R::inputs, reference::kMaxInputs),
      field("body", &R::body, reference::kMaxNodes));
};

template <>
struct Table<reference::Forward> {
  using R = reference::Forward;
  static constexpr auto list = std::make_tuple(
      field("discard", &R::discard), field("nodes", &R::nodes, reference::kMaxNodes),
      field("outputs", &R::outputs, reference::kMaxOutputs), field("constants", &R::constants));
};

template <>
struct Table<reference::Backward> {
  using R = reference::Backward;
  static constexpr auto list = std::make_tuple(field("roots", &R::roots, reference::kMaxRoots));
};

template <>
struct Table<reference::RankPass> {
  using R = reference::RankPass;
  static constexpr auto list = std::make_tuple(
      field("skip", &R::skip), field("recompute", &R::recompute),
      field("keep_outputs", &R::keep_outputs), field("hold_outputs", &R::hold_outputs),
      field("forwards", &R::forwards, reference::kMaxForwards),
      field("backwards", &R::backwards, reference::kMaxBackwards));
};

template <>
struct Table<reference::Step> {
  using R = reference::Step;
  static constexpr auto list = std::make_tuple(
      field("key", &R::key), field("kind", &R::kind), field("zero_grad", &R::zero_grad),
      field("variants", &R::variants, reference::kMaxWorld));
};

template <>
struct Table<reference::Parameter> {
  using R = reference::Parameter;
  static constexpr auto list = std::make_tuple(
      field("key", &R::key), field("dtype", &R::dtype),
      bounded("sizes", &R::sizes, 0, reference::kMaxSize, reference::kMaxDims),
      field("column_major", &R::column_major), field("permuted", &R::permuted),
      field("frozen", &R::frozen), field("ignored", &R::ignored), field("sparse", &R::sparse),
      field("shared_with", &R::shared_with), field("copy_of", &R::copy_of),
      field("device", &R::device), field("reducer", &R::reducer));
};

template <>
struct Table<reference::Buffer> {
  using R = reference::Buffer;
  static constexpr auto list =
      std::make_tuple(field("key", &R::key), field("dtype", &R::dtype),
                      bounded("sizes", &R::sizes, 0, reference::kMaxSize, reference::kMaxDims),
                      field("column_major", &R::column_major), field("device", &R::device),
                      field("ignored", &R::ignored), field("replaced", &R::replaced),
                      field("copy_of", &R::copy_of));
};

template <>
struct Table<reference::Options> {
  using R = reference::Options;
  static constexpr auto list = std::make_tuple(
      field("mode", &R::mode), field("order", &R::order), field("rebuild", &R::rebuild),
      field("views", &R::views), field("manual_sync", &R::manual_sync), field("pinned", &R::pinned),
      field("launch", &R::launch), field("own_group", &R::own_group), field("hook", &R::hook),
      field("hook_result", &R::hook_result), field("hook_completion", &R::hook_completion),
      field("hook_backward", &R::hook_backward), field("with_values", &R::with_values),
      field("keep_buffers", &R::keep_buffers), field("chunk_bytes", &R::chunk_bytes),
      field("join", &R::join), field("first_bucket_bytes", &R::first_bucket_bytes),
      field("bucket_bytes", &R::bucket_bytes), field("last_bucket_bytes", &R::last_bucket_bytes),
      field("verify", &R::verify), field("early_termination", &R::early_termination),
      field("group_each", &R::group_each), field("two_groups", &R::two_groups),
      field("fabric", &R::transport));
};

template <>
struct Table<reference::Misfit> {
  using R = reference::Misfit;
  static constexpr auto list =
      std::make_tuple(field("kind", &R::kind), field("rank", &R::rank),
                      field("at_reset", &R::at_reset), field("pick", &R::pick));
};

template <>
struct Table<reference::Program> {
  using R = reference::Program;
  static constexpr auto list = std::make_tuple(
      bounded("world", &R::world, 1, reference::kMaxWorld), field("key", &R::key),
      field("values", &R::values), bounded("headroom", &R::headroom, 0, reference::kMaxHeadroom),
      field("options", &R::options), field("parameters", &R::parameters, reference::kMaxParameters),
      field("buffers", &R::buffers, reference::kMaxBuffers),
      field("inputs", &R::steps_per_rank, reference::kMaxWorld),
      field("second_join", &R::rejoin_step), field("renewed", &R::recreate_before_step),
      field("misfit", &R::misfit), field("steps", &R::steps, reference::kMaxSteps));
};

template <>
struct Table<faults::Fault> {
  using R = faults::Fault;
  static constexpr auto list = std::make_tuple(
      field("kind", &R::kind), field("rank", &R::rank), field("step", &R::step),
      field("site", &R::site), bounded("duration_us", &R::duration_us, 0, faults::kMaxDurationUs),
      field("peer", &R::peer), field("at", &R::at));
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
  static constexpr auto list = std::make_tuple(field("policy", &R::policy), field("seed", &R::seed),
                                               field("deviations", &R::deviations, kMaxDeviations));
};

template <>
struct Table<Case> {
  using R = Case;
  static constexpr auto list =
      std::make_tuple(field("program", &R::program), FaultList{}, field("schedule", &R::schedule),
                      bounded("timeout_ms", &R::timeout_ms, 0, kMaxTimeoutMs));
};

template <typename T>
concept IsRecord = requires {
  Table<T>::list;
};

template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};

// Calls f(field) for each field of the record, in the order of the table.
template <typename Record, typename F>
constexpr void for_each(F&& f) {
  std::apply([&f](const auto&... each) { (f(each), ...); }, Table<Record>::list);
}

// Compares field by field.
template <typename T>
bool same(const T& a, const T& b) {
  if constexpr (IsVector<T>::value) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i)
      if (!same(a[i], b[i])) return false;
    return true;
  } else if constexpr (IsRecord<T>) {
    bool all = true;
    for_each<T>([&](const auto& each) { all = all && same(each.get(a), each.get(b)); });
    return all;
  } else {
    return a == b;
  }
}

// The names of an enum's values, from 0.
template <typename E>
struct Names;

template <>
struct Names<reference::DType> {
  static constexpr std::array list{"float32", "float64", "float16", "bfloat16", "complex64"};
};
template <>
struct Names<reference::Mode> {
  static constexpr std::array list{"plain", "dynamic", "static"};
};
template <>
struct Names<reference::PassKind> {
  static constexpr std::array list{"synced", "no_sync", "no_grad"};
};
template <>
struct Names<reference::ZeroGrad> {
  static constexpr std::array list{"undefine", "fill", "keep", "replace", "swap"};
};
template <>
struct Names<reference::Recompute> {
  static constexpr std::array list{"none", "once", "twice", "twice_fails"};
};
template <>
struct Names<reference::Values> {
  static constexpr std::array list{"exact", "general", "special", "largest"};
};
template <>
struct Names<reference::Order> {
  static constexpr std::array list{"ring", "bcube", "rank"};
};
template <>
struct Names<reference::Hook> {
  static constexpr std::array list{"none", "allreduce", "fp16", "bf16", "elsewhere", "power_sgd"};
};
template <>
struct Names<reference::HookResult> {
  static constexpr std::array list{"mean", "sum", "local", "zeros"};
};
template <>
struct Names<reference::HookCompletion> {
  static constexpr std::array list{"immediate", "late", "reversed"};
};
template <>
struct Names<reference::HookBackward> {
  static constexpr std::array list{"none", "own", "taken", "all"};
};
template <>
struct Names<reference::Join> {
  static constexpr std::array list{"none", "by_all", "by_active"};
};
template <>
struct Names<reference::Transport> {
  static constexpr std::array list{"host", "staged", "nccl"};
};
template <>
struct Names<reference::MisfitKind> {
  static constexpr std::array list{"none",
                                   "mode",
                                   "views",
                                   "order",
                                   "rebuild",
                                   "manual_sync",
                                   "limits",
                                   "chunk",
                                   "keep_buffers",
                                   "hook",
                                   "launch",
                                   "pinned",
                                   "verify",
                                   "fewer_parameters",
                                   "more_parameters",
                                   "sizes",
                                   "strides",
                                   "dtype",
                                   "name",
                                   "frozen",
                                   "sparse",
                                   "swapped",
                                   "ignored",
                                   "more_buffers",
                                   "more_replicas",
                                   "unknown_name",
                                   "no_limits",
                                   "no_trace",
                                   "two_modes",
                                   "verify_native",
                                   "null_parameter",
                                   "null_buffer",
                                   "holes",
                                   "replica_sizes",
                                   "replica_list",
                                   "group_dtype",
                                   "group_device",
                                   "group_verify",
                                   "layout"};
  static_assert(list.size() == static_cast<std::size_t>(reference::kLastMisfit) + 1);
};
template <>
struct Names<reference::Launch> {
  static constexpr std::array list{"overlapped", "after_backward"};
};
template <>
struct Names<reference::Node::Kind> {
  static constexpr std::array list{"use", "sum", "scale", "stop", "detach", "split", "checkpoint"};
};
template <>
struct Names<Schedule::Policy> {
  static constexpr std::array list{"default",     "random_walk", "stay_biased",
                                   "round_robin", "pos",         "pct"};
};
template <>
struct Names<faults::Kind> {
  static constexpr std::array<const char*, faults::kKinds> list{
      "message_delay", "message_stall", "operation_delay", "operation_stall",  "operation_error",
      "call_error",    "link_reset",    "rank_exit",       "rank_pause",       "node_throws",
      "slow_thread",   "hook_fails",    "payload_flip",    "payload_truncate", "payload_swap",
      "payload_stale", "payload_shift"};
};

template <typename E>
requires std::is_enum_v<E>
constexpr const char* name_of(E value) {
  const auto index = static_cast<std::size_t>(value);
  return index < Names<E>::list.size() ? Names<E>::list[index] : "unknown";
}

}  // namespace lockstep::properties::fields
