// The rows of Environment (environment.h), a part of the table of fields.h. Each has its own line
// in "does not matter" (`change`). This header is not for general use: include fields.h.
#pragma once

#include "properties/case/case.h"
#include "properties/case/field.h"

namespace lockstep::properties::fields {

template <>
struct Values<Environment::Latency> {
  static constexpr Value list[] = {{"none", 1},
                                   {"short", 1, {}, "messages take up to 20 us"},
                                   {"long", 1, {}, "messages take 50 to 250 us"}};
};
template <>
struct Values<Environment::Records> {
  static constexpr Value list[] = {
      {"none", 50},
      {"of_failures", 37, {}, "ranks that fail write flight records"},
      {"with_traces", 6, {}, "ranks that fail write flight records and traces"},
      {"of_all", 7, {}, "all ranks write flight records and traces"}};
};
template <>
struct Values<Environment::UnlikeJoin> {
  static constexpr Value list[] = {
      {"none", 0},
      {"termination", 1, {}, "a last join, where one rank has another throw_on_early_termination"},
      {"divisor", 1, {}, "a last join, where one rank has another divide_by_active"}};
};
template <>
struct Values<Environment::NcclRelease> {
  static constexpr Value list[] = {{"default", 11},
                                   {"2.23", 2, {}, "NCCL 2.23"},
                                   {"2.27", 1, {}, "NCCL 2.27"},
                                   {"2.32", 2, {}, "NCCL 2.32"}};
};
template <>
struct Values<Environment::Keeps> {
  static constexpr Value list[] = {{"none", 2},
                                   {"even_ranks", 1, {}, "even ranks keep communicators"},
                                   {"all_ranks", 1, {}, "ranks keep communicators"}};
};

template <>
struct Table<Environment> {
  using R = Environment;
  static constexpr auto list = std::make_tuple(
      field("latency", &R::latency, {.each = "latency ", .percent = 100, .change = "the latency"}),
      field("latency_seed", &R::latency_seed,
            {.phrase = "latencies of seed {}",
             .percent = 100,
             .change = "the latency of each message"}),
      field("hook_seed", &R::hook_seed,
            {.phrase = "hooks in order {}", .percent = 100, .change = "the order of hooks"}),
      field("processes", &R::processes,
            {.phrase = "on real lanes ranks are processes",
             .feature = "ranks as processes",
             .percent = 12,
             .change = "processes or threads"}),
      field("times", &R::times,
            {.clause = "T3",
             .phrase = "times of passes",
             .feature = "times of passes",
             .percent = 25,
             .change = "times of passes"}),
      field("rosters", &R::rosters,
            {.clause = "F9",
             .phrase = "rosters through a store",
             .feature = "rosters through a store",
             .percent = 25,
             .change = "rosters through a store"}),
      field("records", &R::records,
            {.each = "flight records ", .percent = 100, .change = "flight records"}),
      field("reads_layouts", &R::reads_layouts,
            {.clause = "B3",
             .phrase = "ranks read their layouts",
             .feature = "layouts read at the end",
             .percent = 25,
             .change = "reading layouts"}),
      field("asks_diagnosis", &R::asks_diagnosis,
            {.phrase = "ranks ask for diagnoses",
             .feature = "a diagnosis asked for",
             .percent = 3,
             .change = "diagnoses"}),
      field("asks_after_failure", &R::asks_after_failure,
            {.clause = "P12",
             .phrase = "ranks call their reducer after a failure",
             .feature = "calls after a failure",
             .percent = 25,
             .change = "calls after a failure"}),
      field("uses_ended_group", &R::uses_ended_group,
            {.phrase = "ranks use their group after its end",
             .feature = "a collective of a group that has ended",
             .percent = 25,
             .change = "a collective of a group that has ended"}),
      field("unlike_join", &R::unlike_join,
            {.clause = "S2",
             .feature = "a join whose options differ",
             .percent = 25,
             .change = "a join whose options differ"}),
      field("unlike_rank", &R::unlike_rank,
            {.phrase = "that rank has number {}", .percent = 100, .change = "who joins otherwise"}),
      field("unlike_terminates", &R::unlike_terminates,
            {.phrase = "the others throw on early termination there",
             .percent = 50,
             .change = "early termination of that join"}),
      field("unlike_divides_active", &R::unlike_divides_active,
            {.phrase = "the others divide by those that train there",
             .percent = 50,
             .change = "the divisor of that join"}),
      field("nccl", &R::nccl,
            {.feature = "another release of NCCL", .percent = 100, .change = "NCCL's release"}),
      field("shrink_fails_on", &R::shrink_fails_on,
            {.phrase = "ncclCommShrink fails on rank {}",
             .percent = 25,
             .change = "where ncclCommShrink fails"}),
      field("revoke_fails_on", &R::revoke_fails_on,
            {.phrase = "ncclCommRevoke fails on rank {}",
             .feature = "ncclCommRevoke fails",
             .percent = 50,
             .change = "where ncclCommRevoke fails"}),
      field("revoke_fails_late", &R::revoke_fails_late,
            {.phrase = "it fails only after the call",
             .percent = 50,
             .change = "how ncclCommRevoke fails"}),
      field("shrinks", &R::shrinks,
            {.clause = "F4",
             .phrase = "groups are made smaller",
             .feature = "a group made smaller",
             .percent = 50,
             .change = "smaller groups"}),
      field("keeps", &R::keeps,
            {.clause = "F4",
             .feature = "communicators are kept",
             .percent = 100,
             .change = "which ranks keep communicators"}),
      field("scales_down", &R::scales_down,
            {.clause = "F4",
             .phrase = "ranks that are done go on without the last one",
             .feature = "ranks go on without the last one",
             .percent = 50,
             .change = "going on without the last rank"}),
      field("late_peer", &R::late_peer,
            {.clause = "F4",
             .phrase = "the last one comes too late",
             .feature = "the last rank comes too late",
             .percent = 50,
             .change = "whether the last rank comes too late"}),
      field("excludes_twice", &R::excludes_twice,
            {.phrase = "a rank that leaves is named twice",
             .feature = "a rank that leaves is named twice",
             .percent = 50,
             .change = "how often a rank that leaves is named"}),
      field("lacks_shrink", &R::lacks_shrink,
            {.phrase = "ranks 0 and 1 have no ncclCommShrink",
             .percent = 12,
             .change = "who has no ncclCommShrink"}),
      field("shares_memory", &R::shares_memory,
            {.phrase = "over Gloo, ranks share memory",
             .feature = "ranks share memory",
             .percent = 35,
             .change = "shared memory"}),
      field("leaves_at_once", &R::leaves_at_once,
            {.clause = "F5",
             .phrase = "ranks that are done leave their group at once",
             .feature = "ranks leave at once",
             .percent = 70,
             .change = "leaving at once"}));
};

}  // namespace lockstep::properties::fields
