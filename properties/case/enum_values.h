// The values of each enum of a Case, a row each, in the order of the enum: their names in a case
// file, how often they are drawn, what a subject must be able to do for them, and their words in a
// description. A part of the table of fields (fields.h), which includes it.
#pragma once

#include <array>
#include <cstddef>
#include <iterator>

#include "properties/case/case.h"
#include "properties/case/field.h"

namespace lockstep::properties::fields {

using enum Capability;

template <>
struct Values<reference::DType> {
  static constexpr Value list[] = {{"float32"},
                                   {.name = "float64", .needs = kFloat64},
                                   {.name = "float16", .needs = kFloat16},
                                   {.name = "bfloat16", .needs = kBFloat16},
                                   {.name = "complex64", .needs = kComplex64}};
};
template <>
struct Values<reference::Mode> {
  static constexpr Value list[] = {
      {"plain"}, {.name = "dynamic", .needs = kDynamic}, {.name = "static", .needs = kStatic}};
};
template <>
struct Values<reference::PassKind> {
  static constexpr Value list[] = {
      {"synced"}, {.name = "no_sync", .needs = kNoSync}, {.name = "no_grad", .needs = kNoGrad}};
};
template <>
struct Values<reference::ZeroGrad> {
  static constexpr Value list[] = {
      {.name = "undefine", .phrase = "zero_grad to none"},
      {.name = "fill", .phrase = "zero_grad to zeros"},
      {.name = "keep", .phrase = "no zero_grad"},
      {.name = "replace", .needs = kSetGradients, .phrase = "gradients replaced"},
      {.name = "swap", .needs = kSetGradients, .phrase = "gradients swapped"}};
};
template <>
struct Values<reference::Recompute> {
  static constexpr Value list[] = {
      {"none", 28},
      {"once", 38, kRecompute,
       "in a checkpoint of the whole model: ", "a checkpoint around the whole model"},
      {"twice", 24, kRecompute,
       "in two checkpoints of the whole model, the second ignores that it is refused: ",
       "two checkpoints around the whole model, and the refusal ignored"},
      {"twice_fails", 10, kRecompute,
       "in two checkpoints of the whole model, the second fails as it is refused: ",
       "two checkpoints around the whole model, and the refusal an error (P1)"}};
};
template <>
struct Values<reference::BadNumber::Kind> {
  static constexpr Value list[] = {{"none"},
                                   {"infinity", 1, kSpecial, "+infinity"},
                                   {"minus_infinity", 1, kSpecial, "-infinity"},
                                   {"nan", 1, kSpecial, "a NaN"}};
};
// The largest values come last, and not in every program (generate/reach.h).
template <>
struct Values<reference::Values> {
  static constexpr Value list[] = {{"exact", 45},
                                   {"general", 37, kRounding},
                                   {"special", 18, kSpecial},
                                   {"largest", 0, kRounding}};
};
template <>
struct Values<reference::Order> {
  static constexpr Value list[] = {
      {"ring"}, {.name = "bcube", .needs = kBcube}, {.name = "rank", .needs = kRankOrder}};
};
template <>
struct Values<reference::Hook> {
  static constexpr Value list[] = {{"none", 0},  {"allreduce", 15}, {"fp16", 25},
                                   {"bf16", 25}, {"elsewhere", 95}, {"power_sgd", 50}};
};
template <>
struct Values<reference::HookResult> {
  static constexpr Value list[] = {
      {"mean", 52},
      {"sum", 16, {}, " that returns the sum", "hook: it returns the sum"},
      {"local", 16, {}, " that returns what the rank has", "hook: it returns what the rank has"},
      {"zeros", 16, {}, " that returns zeros", "hook: it returns zeros"}};
};
template <>
struct Values<reference::HookCompletion> {
  static constexpr Value list[] = {
      {"immediate", 50},
      {"late", 25, {}, ", its futures complete late", "hook: futures complete late"},
      {"reversed", 25, {}, ", its futures complete in reversed order"}};
};
template <>
struct Values<reference::HookBackward> {
  static constexpr Value list[] = {
      {"none", 50},
      {"own", 15, {}, ", it runs a backward of its own graph", "hook: a backward of its own graph"},
      {"taken",
       15,
       {},
       ", it runs a backward to a gradient that the pass has taken",
       "hook: a backward to a gradient that the pass has taken"},
      {"all",
       20,
       {},
       ", it runs backwards without gradients to all parameters",
       "hook: backwards to all parameters"}};
};
template <>
struct Values<reference::Join> {
  static constexpr Value list[] = {
      {"none"},
      {.name = "by_all", .phrase = "; the mean is over all ranks"},
      {.name = "by_active", .phrase = "; the mean is over those that train"}};
};
template <>
struct Values<reference::Transport> {
  static constexpr Value list[] = {
      {"host"},
      {.name = "staged", .phrase = "; on a GPU, staged on the host"},
      {.name = "nccl", .phrase = "; on a GPU, by NCCL", .feature = "on a GPU, by NCCL"}};
};
template <>
struct Values<reference::DisagreementKind> {
  // The phrase says what the rank has; {} is a parameter.
  static constexpr auto list = [] {
    std::array<Value, reference::kDisagreements.size()> out{};
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i].name = reference::kDisagreements[i].name;
      out[i].phrase = reference::kDisagreements[i].has;
    }
    return out;
  }();
};
template <>
struct Values<TorchOptions::Finalization> {
  static constexpr Value list[] = {
      {"automatic"},
      {"after", 45, {}, "; the user ends each pass, after backward"},
      {"in_hook", 30, {}, "; the user ends each pass, in a hook of its first parameter"},
      {"always", 8, {}, "; the user ends each pass, also where there is none"},
      {"twice", 8, {}, "; the user ends each pass twice"},
      {"never", 9, {}, "; nobody ends a pass"}};
};
template <>
struct Values<reference::Launch> {
  static constexpr Value list[] = {
      {"overlapped"}, {.name = "after_backward", .phrase = "; reduced after backward"}};
};
template <>
struct Values<reference::Node::Kind> {
  static constexpr Value list[] = {{"use"},
                                   {"sum"},
                                   {"scale"},
                                   {.name = "stop", .needs = kUndefined},
                                   {"detach"},
                                   {"split"},
                                   {.name = "checkpoint", .needs = kCheckpoint}};
};
template <>
struct Values<Schedule::Policy> {
  // portfolio.h has the weights: they differ between transports.
  static constexpr Value list[] = {{.name = "default", .phrase = "default"},
                                   {.name = "random_walk", .phrase = "random walk"},
                                   {.name = "stay_biased", .phrase = "stay-biased walk"},
                                   {.name = "round_robin", .phrase = "round robin"},
                                   {.name = "pos", .phrase = "partial order sampling"},
                                   {.name = "pct", .phrase = "probabilistic concurrency testing"},
                                   {.name = "delay_bounded", .phrase = "delay-bounded scheduling"},
                                   {.name = "urw", .phrase = "uniform random walk"},
                                   {.name = "surw", .phrase = "selectively uniform random walk"}};
};
template <>
struct Values<faults::Kind> {
  static constexpr Value list[] = {
      {"message_delay"},   {"message_stall"},    {"operation_delay"},
      {"operation_stall"}, {"operation_error"},  {"call_error"},
      {"link_reset"},      {"rank_exit"},        {"rank_pause"},
      {"node_throws"},     {"slow_thread"},      {.name = "hook_fails", .needs = kHookCalls},
      {"payload_flip"},    {"payload_truncate"}, {"payload_swap"},
      {"payload_stale"},   {"payload_shift"},    {"connect_error"},
      {"store_delay"},     {"store_error"},      {"store_torn"},
      {"net_partition"},   {"net_loss"},         {"net_reset"},
      {"net_reject"},      {"net_half_open"},    {"net_bandwidth"},
      {"net_mtu"},         {"net_delay"},        {"net_cut"},
      {"node_stop"},       {"node_memory"},      {"node_descriptors"},
      {"node_clock"},      {"store_full"},       {"store_dead"},
      {"store_slow"},      {"rank_replaced"},    {"rank_left_out"},
      {"memory_refused"},  {"user_abort"}};
  static_assert(std::size(list) == faults::kKinds);
};

}  // namespace lockstep::properties::fields
