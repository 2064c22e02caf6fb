// Exclusions: what a program excludes of its own fields, and by which clause of the contract. This
// is the one table of it, and everybody reads it: normalize() gives an excluded field the value
// that is left, and so names a case file the clause; the generator asks is_excluded() before it
// draws what depends on a field; capabilities and descriptions see normalized programs, and
// coverage counts no excluded pair. properties/case/exclusions.h has what concerns a case.
//
// Plain constants and pure functions; any thread.
#pragma once

#include <tuple>
#include <type_traits>

#include "reference/program.h"

namespace lockstep::reference {

// One value of a field, which becomes another one.
template <typename Record, typename T>
struct OneValue {
  T Record::*field;
  T value;
  T instead;
};

// One row. Where holds() is true, each of the fields has its simplest value, or any but one value.
// A row follows those of the fields that its function looks at.
template <typename Whole, typename... Fields>
struct Exclusion {
  const char* clause;  // of CONTRACT.md; empty where no clause says it
  std::tuple<Fields...> fields;
  bool (*holds)(const Whole&);
};

inline constexpr auto kExclusions = [] {
  using P = const Program&;
  using R = Replicated;
  using std::tuple;
  return tuple(
      Exclusion{"F8",
                tuple(&Parameter::device, &Buffer::device,
                      OneValue{&R::hook, Hook::kPowerSgd, Hook::kAllReduce}),
                +[](P p) { return p.options.transport != Transport::kHost; }},
      Exclusion{"G3", tuple(OneValue{&R::order, Order::kBcube, Order::kRing}),
                +[](P p) { return p.options.transport == Transport::kNccl; }},
      Exclusion{"P6", tuple(&R::repeated_hooks),
                +[](P p) { return p.options.mode != Mode::kPlain; }},
      Exclusion{"F3", tuple(&R::verify), +[](P p) { return p.options.order != Order::kRankOrder; }},
      Exclusion{"S4", tuple(&R::power_sgd_rank),
                +[](P p) { return p.options.hook != Hook::kPowerSgd; }},
      Exclusion{"S4", tuple(&R::hook_result, &R::hook_completion, &R::hook_backward),
                +[](P p) { return p.options.hook != Hook::kElsewhere; }},
      Exclusion{"B2", tuple(OneValue{&R::hook_backward, HookBackward::kAll, HookBackward::kNone}),
                +[](P p) { return p.options.rebuild; }},
      Exclusion{"P14", tuple(&R::own_group),
                +[](P p) { return p.options.launch == Launch::kOverlapped; }},
      Exclusion{"P14", tuple(&R::first_bucket_bytes, &R::last_bucket_bytes),
                +[](P p) { return p.options.launch == Launch::kAfterBackward; }},
      Exclusion{"S2", tuple(&R::early_termination, &Job::rejoin_step),
                +[](P p) { return p.options.join == Join::kNone; }},
      Exclusion{"S2", tuple(&Parameter::reducer, &Job::recreate_before_step),
                +[](P p) { return p.options.join != Join::kNone; }},
      Exclusion{"F7", tuple(&R::group_each), +[](P p) { return reducer_count(p) == 1; }},
      Exclusion{"G1", tuple(&R::two_groups), +[](P p) { return p.world < 2; }},
      Exclusion{"G2", tuple(&Job::headroom), +[](P p) { return p.values != Values::kLargest; }},
      Exclusion{"P13", tuple(&Forward::local, &RankPass::recompute),
                +[](P p) { return p.options.manual_sync; }},
      Exclusion{"S2", tuple(&RankPass::recompute, &Backward::held_synced),
                +[](P p) { return p.options.early_termination; }},
      Exclusion{"S2", tuple(&RankPass::absent),
                +[](P p) { return p.options.join != Join::kNone; }});
}();

// Calls visit(row, field) for each field of each row.
template <typename Rows, typename Visit>
constexpr void for_each_excluded(const Rows& rows, const Visit& visit) {
  const auto visit_row = [&](const auto& row) {
    std::apply([&](const auto&... field) { (visit(row, field), ...); }, row.fields);
  };
  std::apply([&](const auto&... row) { (visit_row(row), ...); }, rows);
}

// Whether the program leaves the field nothing but its simplest value.
template <typename Record, typename T>
bool is_excluded(T Record::*field, const Program& program) {
  bool any = false;
  for_each_excluded(kExclusions, [&](const auto& row, const auto& each) {
    if constexpr (std::is_same_v<decltype(each), T Record::*const&>)
      any = any || (each == field && row.holds(program));
  });
  return any;
}

// Gives the fields of the record, which is a part of `whole`, the values that are left.
template <typename Rows, typename Whole, typename Record>
void leave_out_excluded(const Rows& rows, const Whole& whole, Record& record) {
  static const Record simplest{};
  for_each_excluded(rows, [&](const auto& row, const auto& field) {
    if constexpr (requires { record.*field; }) {
      if (row.holds(whole)) record.*field = simplest.*field;
    } else if constexpr (requires { record.*field.field; }) {
      auto& value = record.*field.field;
      if (row.holds(whole) && value == field.value) value = field.instead;
    }
  });
}

// The same for a program but for its steps.
void leave_out_excluded(Program& program);

}  // namespace lockstep::reference
