// The oracle on the flight records of the ranks (T1, F6). It compares each record with the steps of
// its rank, and the joined diagnosis with what the model and the fault plan determine beyond doubt.
#include "reducer/diagnosis/diagnosis.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "properties/oracle/allowed_outcomes.h"
#include "properties/oracle/fault_reach.h"
#include "properties/oracle/oracles.h"
#include "properties/oracle/recorded_collectives.h"
#include "reference/model/engine.h"
#include "reference/outcome.h"

namespace lockstep::properties {
namespace {

using reference::Error;
using reference::Outcome;

// Judges the first reducer of one group of ranks, between two recoveries.
class DiagnosisOracle {
 public:
  DiagnosisOracle(const Case& c, const reference::Expectation& expectation,
                  const Observation& observation, std::uint32_t generation, std::uint32_t group,
                  const Diagnosis& diagnosis, UnspecifiedCounts& counts)
      : program_(c.program),
        observation_(observation),
        diagnosis_(diagnosis),
        counts_(counts),
        share_(reference::share_of(c.program, expectation, group, 0)),
        fatal_(fatal_faults(c, observation)),
        has_one_reducer_(reference::reducer_count(c.program) == 1),
        joins_(c.program.options.join != reference::Join::kNone) {
    const auto& recoveries = observation.recoveries;
    is_last_ = generation == recoveries.size();
    end_ = is_last_ ? static_cast<std::uint32_t>(share_.steps.size())
                    : recoveries[generation].before_step;
    if (generation > 0) begin_ = recoveries[generation - 1].before_step;
    // Ranks that join come after those that stay (F4), whatever their number in the program.
    if (generation > 0) members_ = recoveries[generation - 1].survivors;
    for (std::uint32_t rank = 0; generation == 0 && rank < observation.ranks.size(); ++rank)
      members_.push_back(rank);
    std::erase_if(members_, [&](std::uint32_t rank) {
      return reference::group_of(c.program, rank) != group;
    });
  }

  Verdict judge() const {
    for (const FlightRecord& record : diagnosis_.records) {
      std::string violation = judge_flight_record(record);
      if (violation.empty() && has_one_reducer_ && !joins_)
        violation = judge_place(record);
      else
        counts_.note(Unspecified::kFlightRecord);
      if (!violation.empty()) return wrong(fmt::format("rank {} {}", record.rank, violation));
    }
    if (Verdict verdict = judge_sides(); !verdict.ok()) return verdict;
    if (Verdict verdict = judge_waits(); !verdict.ok()) return verdict;
    if (is_well() && !is_aborted() && !diagnosis_.clean())
      return wrong("nothing failed, and the diagnosis does not say so");
    return judge_suspects();
  }

 private:
  Verdict wrong(const std::string& what) const {
    return {Failing::kWrongError, "diagnosis",
            fmt::format("the diagnosis of ranks {}: {}\n{}", fmt::join(members_, " "), what,
                        diagnosis_.to_string())};
  }

  const RankObservation& seen(const FlightRecord& record) const {
    return observation_.ranks[rank_of(record)];
  }

  std::uint32_t rank_of(const FlightRecord& record) const {
    return members_[static_cast<std::size_t>(record.rank)];
  }

  // Whether the rank takes no part in the pass of the step (P8).
  bool is_absent(std::uint32_t step, std::uint32_t rank) const {
    return reference::pass_of(program_.steps[step], rank).absent &&
           share_.steps[step].ranks[rank].present;
  }

  bool is_of_generation(const ObservedStep& step) const {
    return begin_ <= step.step && step.step < end_;
  }

  const ObservedStep* last_step(const RankObservation& rank) const {
    const auto last = std::find_if(rank.steps.rbegin(), rank.steps.rend(),
                                   [&](const auto& step) { return is_of_generation(step); });
    return last == rank.steps.rend() ? nullptr : &*last;
  }

  // Returns the first step of the reducers of `step`, which may have been recreated before it.
  std::uint32_t first_step(std::uint32_t step) const {
    return program_.recreate_before_step <= step ? std::max(begin_, program_.recreate_before_step)
                                                 : begin_;
  }

  // The record may come from recreated reducers that have not run a step yet.
  bool may_be_renewed(const ObservedStep& last) const {
    return program_.recreate_before_step != 0 && program_.recreate_before_step == last.step + 1;
  }

  // Returns the number of the step's pass, or of the pass that would come next in the step.
  std::int64_t pass_number(std::uint32_t step) const {
    return reference::pass_number(share_, step, first_step(step));
  }

  // Returns whether a reducer's collectives complete in the order in which they were started, so
  // that none completes after one that failed. With kNccl and kStaged, and in the group of the
  // simulator, they do. Gloo's group (kHost) runs several at once, and a later one may be complete
  // when an earlier one fails.
  bool completes_in_order() const {
    const bool is_in_order =
        program_.options.transport != reference::Transport::kHost || observation_.closes_silently;
    return is_in_order && !program_.options.own_group && reference::reducer_count(program_) == 1;
  }

  // Compares one rank's record of its collectives with the rank's own trace of the successful
  // steps.
  std::string judge_flight_record(const FlightRecord& record) const {
    if (record.size != static_cast<int>(members_.size()))
      return "records another size of its group";
    for (std::size_t i = 1; i < record.collectives.size(); ++i) {
      const RecordedCollective& before = record.collectives[i - 1];
      const RecordedCollective& here = record.collectives[i];
      if (here.pass < before.pass) return "goes back to an earlier pass";
      const bool is_wonder = before.state == RecordedCollective::State::kFailed &&
                             here.state == RecordedCollective::State::kCompleted;
      if (is_wonder && completes_in_order())
        return fmt::format("completed #{} after a collective had failed", here.sequence);
    }
    if (record.reducer_id != diagnosis_.records.front().reducer_id)
      return "records another number of its reducer than others";
    const bool is_empty = record.collectives.empty();
    if (!is_empty && record.next_sequence != record.collectives.back().sequence + 1)
      return fmt::format("records #{} as the next one", record.next_sequence);
    if (std::string violation = judge_layouts(record); !violation.empty()) return violation;
    const ObservedStep* const last = last_step(seen(record));
    if (last == nullptr || may_be_renewed(*last)) return "";
    for (const ObservedStep& step : seen(record).steps) {
      if (!step.status.ok() || !is_of_generation(step)) continue;
      if (step.step < first_step(last->step)) continue;  // steps of other reducers
      std::string violation = judge_step(record, step, *last);
      if (!violation.empty())
        return fmt::format("records of step {} what was not so: {}", step.step, violation);
    }
    return "";
  }

  // A bucket has its parameters as long as the layout is the one that it belongs to.
  bool has_parameters(const RecordedCollective& recorded, std::uint32_t step,
                      const ObservedStep& last) const {
    if (recorded.what != RecordedCollective::What::kBucket) return recorded.parameters.empty();
    // A step that failed may have rebuilt the buckets, and so may a rank without inputs (S2).
    const bool may_be_old = share_.steps[step].layout != share_.steps[last.step].layout ||
                            ((joins_ || !last.status.ok()) && program_.options.rebuild);
    if (recorded.parameters.empty()) return may_be_old;
    const auto& buckets = reference::buckets_of(share_, share_.steps[step]);
    const auto index = static_cast<std::size_t>(recorded.bucket);
    if (recorded.bucket < 0 || index >= buckets.size()) return false;
    lockstep::Names names;
    for (const std::uint32_t p : buckets[index].parameters) names.add(fmt::format("p{}", p));
    return recorded.parameters == names;
  }

  std::string judge_step(const FlightRecord& record, const ObservedStep& step,
                         const ObservedStep& last) const {
    for (const ObservedCollective& own : step.collectives) {
      if (own.reducer != 0 || own.op == ObservedCollective::Op::kOther) continue;
      const RecordedCollective* const recorded = record.find(own.sequence);
      if (recorded == nullptr) {
        const bool forgotten =
            !record.collectives.empty() && own.sequence < record.collectives.front().sequence;
        if (forgotten) continue;
        return fmt::format("#{} is left out", own.sequence);
      }
      const auto wrong_entry = [&](const std::string& what) {
        return fmt::format("#{}, {}, {}", recorded->sequence, recorded->to_string(), what);
      };
      if (recorded->state != RecordedCollective::State::kCompleted)
        return wrong_entry("was completed");
      const bool is_sparse = own.op == ObservedCollective::Op::kGatherSparse;
      const std::uint64_t unit = is_sparse ? size_of(own.dtype) : 1;
      const bool is_same = recorded->bucket == own.bucket &&
                           recorded->dtype == lockstep::name_of(own.dtype) &&
                           static_cast<std::uint64_t>(recorded->count) * unit == own.count;
      if (!is_same || recorded->what != what_of(own.op) || recorded->op != operation_of(own.op))
        return wrong_entry("was another collective");
      if (!has_parameters(*recorded, step.step, last)) return wrong_entry("has other parameters");
      const bool is_then = recorded->launched_us == static_cast<std::int64_t>(own.launched_us) &&
                           recorded->completed_us == static_cast<std::int64_t>(own.completed_us);
      if (!is_then)
        return wrong_entry(fmt::format(
            "ran at another time: from {} to {} us, and not from {} to {}", own.launched_us,
            own.completed_us, recorded->launched_us, recorded->completed_us));
      const bool has_number = recorded->what == RecordedCollective::What::kBucket ||
                              recorded->what == RecordedCollective::What::kUsageMap;
      if (has_number && !joins_ && recorded->pass != pass_number(step.step))
        return wrong_entry(fmt::format("was of pass {}", pass_number(step.step)));
    }
    return "";
  }

  std::string leave_open() const {
    counts_.note(Unspecified::kFlightRecord);
    return "";
  }

  // Whether the backward call of the rank belongs to no pass (P1): the reducer does not record its
  // failure.
  bool is_local_call(std::uint32_t step, std::size_t rank, std::int64_t call) const {
    const reference::Step& record = program_.steps[step];
    if (record.kind != reference::PassKind::kSynced) return true;
    const reference::RankPass& pass = record.variants[rank % record.variants.size()];
    const bool is_backward = call >= 0 && call < reference::call_count(pass);
    return is_backward && !reference::is_synced_call(pass, static_cast<std::uint32_t>(call));
  }
  bool has_local_call(std::uint32_t step, std::size_t rank) const {
    for (std::uint32_t call = 0; call < reference::kMaxBackwards; ++call)
      if (is_local_call(step, rank, call)) return true;
    return false;
  }

  // Returns whether the step, which ended well, must have opened a pass and left it open.
  bool is_armed(const ObservedStep& step, const FlightRecord& record) const {
    const reference::Step& made = program_.steps[step.step];
    const auto rank = static_cast<std::size_t>(&seen(record) - observation_.ranks.data());
    const reference::RankPass& pass = made.variants[rank % made.variants.size()];
    const bool is_plain = made.kind == reference::PassKind::kSynced &&
                          !program_.options.manual_sync &&
                          pass.recompute == reference::Recompute::kNone;
    return is_plain && !share_.steps[step.step].is_reduced && !pass.forwards.empty() &&
           std::all_of(pass.forwards.begin(), pass.forwards.end(), [](const auto& forward) {
             return !forward.local && !forward.outputs.empty();
           });
  }

  // Compares the state of the rank's pass and the reason for it with the rank's current step.
  std::string judge_place(const FlightRecord& record) const {
    const ObservedStep* const last = last_step(seen(record));
    if (last == nullptr || may_be_renewed(*last)) return leave_open();
    const std::int64_t number = pass_number(last->step);
    if (last->status.ok()) {
      const bool is_reduced =
          share_.steps[last->step].is_reduced && !is_absent(last->step, rank_of(record));
      const std::int64_t next = number + (is_reduced ? 1 : 0);
      if (record.pass != next) return fmt::format("comes to pass {}, not {}", next, record.pass);
      if (is_reduced && (record.doing != FlightRecord::Doing::kIdle || record.next_bucket != kNone))
        return fmt::format("has completed its pass, and records that it is {}",
                           lockstep::name_of(record.doing));
      if (is_armed(*last, record) && record.doing == FlightRecord::Doing::kIdle)
        return "has run a forward of a pass, and records that it is idle";
      return "";
    }
    // A second backward of a complete pass (P7), or an error of a backward that only the engine
    // runs, is not an error of the reducer.
    if (last->status.code() == Code::kSecondBackward) return leave_open();
    const auto rank = static_cast<std::size_t>(&seen(record) - observation_.ranks.data());
    if (is_local_call(last->step, rank, last->failed_call)) return leave_open();
    if (!record.failure) return "does not record its failure: " + last->status.to_string();
    if (last->status.code() == Code::kPoisoned && has_aborted_reducers(rank))
      return last->status.failure().detail.ends_with(record.failure->detail)
                 ? ""
                 : "is not that of the abort: " + last->status.to_string();
    if (record.failure->code != last->status.code() ||
        record.failure->rank != last->status.failure().rank)
      return "does not record the failure that it had: " + last->status.to_string();
    if (std::string violation = judge_failure(record, last->status.failure()); !violation.empty())
      return violation;
    if (record.pass != number)
      return fmt::format("failed in pass {}, and records pass {}", number, record.pass);
    if (std::string violation = judge_progress(record, *last); !violation.empty()) return violation;
    return record.next_bucket == kNone || !knows_layout(last->step) ? ""
                                                                    : judge_missing(record, *last);
  }

  // How many collectives the ranks of a new group agree by, at most (B4).
  std::int64_t agreements() const {
    const reference::Replicated& options = program_.options;
    return 1 + (options.pinned != 0 ? 1 : 0) + (options.own_group ? 1 : 0);
  }

  // A failure of the group in a bucket says to which reducer the bucket belongs. A failure in an
  // agreement, of which the rank hears in a bucket, says to none; nor does the future of a hook
  // that never ends, which is no collective's.
  std::string judge_failure(const FlightRecord& record, const Failure& raised) const {
    if (record.failure->detail != raised.detail || record.failure->bucket != raised.bucket ||
        record.failure->sequence != raised.sequence)
      return "records another failure than the one that was raised: " + raised.to_string();
    const bool is_of_future = raised.code == Code::kTimeout && raised.definite;
    const bool is_of_bucket = !kOwnErrors.has(raised.code) && !is_of_future &&
                              !raised.collective.empty() && raised.bucket != kNone &&
                              raised.code != Code::kAborted && raised.sequence >= agreements();
    const bool is_own = raised.reducer_id == record.reducer_id;
    // A cause outside of collectives is raised with the one in which the rank met it.
    const bool is_there = is_own && !raised.definite && raised.code != Code::kAborted;
    if (is_there && !program_.options.own_group && !has_number_of(raised, record))
      return "gives the number of the collective that failed to another one";
    if (is_own || (raised.reducer_id == kNone && !is_of_bucket)) return "";
    return fmt::format("is that of reducer {}, and the failure says {}", record.reducer_id,
                       raised.reducer_id);
  }

  bool is_of_generation(const faults::Fault& fault) const {
    return begin_ <= fault.step && fault.step < end_;
  }

  bool has_aborted_reducers(std::size_t rank) const {
    return std::any_of(fatal_.begin(), fatal_.end(), [&](const faults::Fault& fault) {
      return aborts_reducers(fault, rank) && is_of_generation(fault);
    });
  }

  // Returns whether the user of a rank of the group may have aborted. Where the rank needs nobody
  // any more, no step fails.
  bool is_aborted() const {
    return std::any_of(fatal_.begin(), fatal_.end(), [&](const faults::Fault& fault) {
      const bool is_member =
          std::find(members_.begin(), members_.end(), fault.rank) != members_.end();
      return fault.kind == faults::Kind::kUserAbort && is_member && is_of_generation(fault);
    });
  }

  // A backward of the pass had begun where one of its calls failed, and the buckets before the next
  // one are those that it had launched.
  std::string judge_progress(const FlightRecord& record, const ObservedStep& step) const {
    using Doing = FlightRecord::Doing;
    const reference::Step& made = program_.steps[step.step];
    const auto rank = static_cast<std::size_t>(&seen(record) - observation_.ranks.data());
    const reference::RankPass& pass = made.variants[rank % made.variants.size()];
    const bool is_backward =
        step.failed_call >= 0 &&
        step.failed_call < static_cast<std::int32_t>(reference::call_count(pass));
    const bool has_begun = record.doing != Doing::kIdle && record.doing != Doing::kArmed;
    if (!is_backward || pass.recompute != reference::Recompute::kNone) return "";
    if (has_aborted_reducers(rank)) return "";  // before the call that failed
    if (!has_begun)
      return fmt::format("failed in a backward, and records that it is {}",
                         lockstep::name_of(record.doing));
    return judge_next_bucket(record, step.step);
  }

  std::string judge_next_bucket(const FlightRecord& record, std::uint32_t step) const {
    // The record has the last collectives alone, and a communication hook starts what it wants.
    const bool is_whole =
        !record.collectives.empty() && record.collectives.front().pass < record.pass;
    if (!is_whole || program_.options.hook != reference::Hook::kNone) return "";
    int launched = 0;
    for (const RecordedCollective& each : record.collectives)
      if (each.pass == record.pass && each.what == RecordedCollective::What::kBucket)
        launched = std::max(launched, each.bucket + 1);
    if (record.next_bucket == launched) return "";
    if (record.next_bucket == kNone) {
      if (!knows_layout(step)) return "";
      const std::size_t buckets = reference::buckets_of(share_, share_.steps[step]).size();
      if (static_cast<std::size_t>(launched) >= buckets) return "";
      return fmt::format("records no next bucket, and has launched {} of {}", launched, buckets);
    }
    return fmt::format("records bucket {} as the next one, and has launched {}", record.next_bucket,
                       launched);
  }

  // If the buckets follow a ready order from a step that failed, no rank reports the layout (B2).
  bool knows_layout(std::uint32_t step) const {
    if (!program_.options.rebuild || pass_number(step) == 0) return true;
    const auto tells = [&](const ObservedStep& each) {
      return first_step(step) <= each.step && each.step <= step && !each.rebuilt_order.empty();
    };
    return std::any_of(members_.begin(), members_.end(), [&](std::uint32_t rank) {
      const auto& steps = observation_.ranks[rank].steps;
      return std::any_of(steps.begin(), steps.end(), tells);
    });
  }

  // The missing parameters must lie in the next bucket. For an incomplete pass they must be all
  // that the bucket lacks.
  std::string judge_missing(const FlightRecord& record, const ObservedStep& step) const {
    const auto& buckets = reference::buckets_of(share_, share_.steps[step.step]);
    const auto index = static_cast<std::size_t>(record.next_bucket);
    if (record.next_bucket < 0 || index >= buckets.size()) return "records a bucket that is none";
    const auto& members = buckets[index].parameters;
    const auto is_member = [&](std::uint32_t parameter) {
      return std::find(members.begin(), members.end(),
                       reference::original_of(program_, parameter)) != members.end();
    };
    const auto& named = record.missing.first;
    std::size_t members_named = 0;
    for (std::uint32_t p = 0; p < program_.parameters.size(); ++p)
      if (is_member(p))
        members_named += std::count(named.begin(), named.end(), fmt::format("p{}", p)) != 0 ? 1 : 0;
    if (members_named != named.size())
      return fmt::format("lacks {} in bucket {}, where they do not lie all",
                         record.missing.to_string(), record.next_bucket);
    const std::size_t rank = members_[static_cast<std::size_t>(record.rank)];
    const reference::ExpectedRankStep& expected = share_.steps[step.step].ranks[rank];
    const bool is_own =
        expected.outcome == Outcome::kOwnError && expected.error == Error::kIncomplete &&
        record.failure->code == Code::kIncomplete && record.failure->rank == record.rank;
    const auto lacking = static_cast<std::uint64_t>(
        std::count_if(expected.parameters.begin(), expected.parameters.end(), is_member));
    if (!is_own || record.missing.count == lacking) return "";
    return fmt::format("lacks {} in bucket {}, and {} were missing there",
                       record.missing.to_string(), record.next_bucket, lacking);
  }

  // Up to the common progress of the ranks, all started the same collectives (T1). Each rank is on
  // one side of a difference.
  Verdict judge_sides() const {
    if (!diagnosis_.difference) return {};
    std::vector<int> ranks;
    int started = 0;
    for (const Diagnosis::Side& side : diagnosis_.difference->sides) {
      started += side.collective ? 1 : 0;
      ranks.insert(ranks.end(), side.ranks.begin(), side.ranks.end());
    }
    for (const FlightRecord& record : diagnosis_.records)
      if (std::count(ranks.begin(), ranks.end(), record.rank) != 1)
        return wrong(fmt::format("rank {} is not on one side of the difference", record.rank));
    if (started > 1) return wrong("ranks started different collectives");
    return {};
  }

  // A wait must list exactly the ranks that have not arrived.
  Verdict judge_waits() const {
    for (const Diagnosis::Wait& wait : diagnosis_.waits) {
      const auto own =
          std::find_if(diagnosis_.records.begin(), diagnosis_.records.end(),
                       [&](const FlightRecord& each) { return each.rank == wait.rank; });
      const RecordedCollective* const open =
          own == diagnosis_.records.end() ? nullptr : own->find(wait.sequence);
      if (open == nullptr || open->state == RecordedCollective::State::kCompleted)
        return wrong(
            fmt::format("rank {} waits in a collective that it has not recorded", wait.rank));
      for (const FlightRecord& other : diagnosis_.records) {
        const RecordedCollective* const there = other.find(wait.sequence);
        const bool has_come =
            there != nullptr ? there->same_as(*open) : wait.sequence < other.next_sequence;
        const bool is_named =
            std::find(wait.ranks.begin(), wait.ranks.end(), other.rank) != wait.ranks.end();
        if (has_come && is_named)
          return wrong(fmt::format("rank {} waits for rank {}, which has come to #{}", wait.rank,
                                   other.rank, wait.sequence));
        if (!has_come && !is_named)
          return wrong(fmt::format("rank {} does not wait for rank {}, which has not come to #{}",
                                   wait.rank, other.rank, wait.sequence));
      }
    }
    return {};
  }

  bool is_well() const {
    if (joins_ && !is_last_) return false;  // other ranks may have no inputs when one fails
    const auto is_well = [&](std::uint32_t rank) {
      const RankObservation& seen = observation_.ranks[rank];
      if (seen.exited || !seen.joining.ok() || !seen.failed_joins.empty()) return false;
      return seen.steps.size() == observation_.ranks[members_[0]].steps.size() &&
             std::all_of(seen.steps.begin(), seen.steps.end(), [&](const ObservedStep& step) {
               return !is_of_generation(step) || step.status.ok();
             });
    };
    return std::all_of(members_.begin(), members_.end(), is_well);
  }

  // Whom the diagnosis may suspect: one of these ranks of the group, or nobody.
  struct AllowedSuspects {
    Among ranks;
    bool may_be_nobody = false;
    bool is_anything = false;  // nobody can tell, as `open` says
    Reasons open = {};

    static AllowedSuspects anybody() {
      return {{}, true, true, Reasons(Unspecified::kFlightRecord)};
    }
    bool has(const std::vector<int>& suspects) const {
      if (is_anything || (suspects.empty() && may_be_nobody)) return true;
      return suspects.size() == 1 && ranks.has(suspects[0]);
    }
  };

  struct Culprit {
    std::uint32_t rank = 0;
    bool is_certain = false;  // the rank reports its own error, or reports nothing
  };

  // Returns the one rank that fails first in this generation, if there is exactly one.
  std::optional<Culprit> culprit() const {
    std::vector<Culprit> all;
    for (const faults::Fault& fault : fatal_) {
      // The link has two ends, and nobody knows which one broke it.
      if (fault.kind == faults::Kind::kLinkReset || faults::is_network(fault.kind))
        return std::nullopt;
      // No rank is to blame for the store, nor for a connection that could not be made.
      if (faults::is_of_store(fault.kind) || fault.kind == faults::Kind::kNodeDescriptors)
        return std::nullopt;
      const bool is_silence =
          fault.kind == faults::Kind::kOperationStall ||
          fault.kind == faults::Kind::kMessageStall || fault.kind == faults::Kind::kRankPause ||
          fault.kind == faults::Kind::kNodeStop || fault.kind == faults::Kind::kRankLeftOut;
      const bool is_local = fault.kind == faults::Kind::kNodeThrows &&
                            program_.steps[fault.step].kind == reference::PassKind::kSynced &&
                            has_local_call(fault.step, fault.rank);
      all.push_back({fault.rank, !is_silence && !is_local});
    }
    for (std::uint32_t step = begin_; step < end_; ++step)
      for (const std::uint32_t rank : members_) {
        const reference::ExpectedRankStep& expected = share_.steps[step].ranks[rank];
        if (is_absent(step, rank)) all.push_back({rank, true});
        if (expected.outcome != Outcome::kOwnError) continue;
        // A second backward is not a failure of the reducer (P7), nor is one that stays local.
        const bool is_local = program_.steps[step].kind == reference::PassKind::kSynced &&
                              is_local_call(step, rank, std::int64_t{expected.error_call});
        all.push_back({rank, expected.error != Error::kSecondBackward && !is_local});
      }
    if (all.size() != 1) return std::nullopt;
    return all[0];
  }

  // The diagnosis suspects the culprit (F6). Under join, healthy ranks end the group, too (S2).
  AllowedSuspects allowed_suspects() const {
    if (diagnosis_.clean()) return {Among::none(), true};  // judge_place() knows who has failed
    const std::optional<Culprit> culprit = this->culprit();
    if (!culprit || !has_one_reducer_ || joins_) return AllowedSuspects::anybody();
    AllowedSuspects allowed{Among::none(), !culprit->is_certain};
    const auto here = std::find(members_.begin(), members_.end(), culprit->rank);
    if (here != members_.end()) allowed.ranks.add(here - members_.begin());
    // Ranks that are silent may not have begun (training.cc, join()).
    const auto& silent = diagnosis_.silent;
    const auto is_it = [&](int rank) { return allowed.ranks.has(rank); };
    if (!std::all_of(silent.begin(), silent.end(), is_it)) return AllowedSuspects::anybody();
    return allowed;
  }

  Verdict judge_suspects() const {
    const AllowedSuspects allowed = allowed_suspects();
    allowed.open.note_in(counts_);
    if (allowed.has(diagnosis_.suspects)) return {};
    std::vector<std::string> words;
    for (std::size_t rank = 0; rank < members_.size(); ++rank)
      if (allowed.ranks.has(static_cast<int>(rank)))
        words.push_back(fmt::format("rank {} of the program", members_[rank]));
    if (allowed.may_be_nobody) words.emplace_back("nobody");
    return wrong(
        fmt::format("it suspects {}; allowed: {}",
                    diagnosis_.suspects.empty()
                        ? "nobody"
                        : fmt::format("rank {}", fmt::join(diagnosis_.suspects, ", rank ")),
                    words.empty() ? "no outcome" : fmt::to_string(fmt::join(words, " or "))));
  }

  const reference::Program& program_;
  const Observation& observation_;
  const Diagnosis& diagnosis_;
  UnspecifiedCounts& counts_;
  const reference::Expectation& share_;
  const std::vector<faults::Fault> fatal_;
  const bool has_one_reducer_;
  const bool joins_;
  bool is_last_ = false;
  std::uint32_t begin_ = 0;  // the steps of the generation
  std::uint32_t end_ = 0;
  std::vector<std::uint32_t> members_;  // by rank in the group
};

}  // namespace

Verdict judge_diagnosis(const Case& c, const reference::Expectation& expectation,
                        const Observation& observation, std::uint32_t generation,
                        std::uint32_t group, const Diagnosis& diagnosis,
                        UnspecifiedCounts& counts) {
  return DiagnosisOracle(c, expectation, observation, generation, group, diagnosis, counts).judge();
}

Verdict judge_diagnosis(const Case& c, const reference::Expectation& expectation,
                        const Observation& observation, UnspecifiedCounts& counts) {
  if (Verdict verdict = judge_trace_texts(observation); !verdict.ok()) return verdict;
  for (std::uint32_t generation = 0; generation <= observation.recoveries.size(); ++generation) {
    for (std::uint32_t group = 0; group < reference::group_count(c.program); ++group) {
      std::vector<FlightRecord> records = observation.flight_records_of(generation, group);
      if (records.empty()) continue;
      const Result<Diagnosis> diagnosis = diagnose(std::move(records));
      if (!diagnosis)
        return {Failing::kWrongError, "diagnosis",
                "the flight records cannot be joined: " + diagnosis.error().to_string()};
      Verdict verdict =
          judge_diagnosis(c, expectation, observation, generation, group, *diagnosis, counts);
      if (!verdict.ok()) return verdict;
    }
  }
  return {};
}

}  // namespace lockstep::properties
