// What a rank tells of itself (T1): its account, and those of its peers.
#include <new>

#include "reducer/pass.h"
#include "reducer/reducer.h"

namespace lockstep::inline LOCKSTEP_NS {
namespace {

std::int64_t microseconds(platform::Duration time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time).count();
}

AccountedCollective::What told(TraceEntry::What what) {
  switch (what) {
    case TraceEntry::What::kBucket:
      return AccountedCollective::What::kBucket;
    case TraceEntry::What::kUsageMap:
      return AccountedCollective::What::kUsageMap;
    case TraceEntry::What::kRebuild:
      return AccountedCollective::What::kOrder;
    case TraceEntry::What::kState:
      return AccountedCollective::What::kState;
    case TraceEntry::What::kJoin:
      break;
  }
  return AccountedCollective::What::kJoin;
}

AccountedCollective::State told(TraceEntry::State state) {
  switch (state) {
    case TraceEntry::State::kLaunched:
      return AccountedCollective::State::kInFlight;
    case TraceEntry::State::kCompleted:
      return AccountedCollective::State::kCompleted;
    case TraceEntry::State::kFailed:
      break;
  }
  return AccountedCollective::State::kFailed;
}

}  // namespace

Reducer::Stand Reducer::stand() const {
  Stand stand;
  stand.pass = next_pass_;
  if (!pass_) return stand;
  stand.doing = Account::Doing::kArmed;
  if (pass_->state == Pass::State::kOpen) return stand;
  stand.pass = pass_->number;
  stand.next_bucket = next_bucket_;
  if (running_task_ != nullptr)
    stand.doing = Account::Doing::kBackward;
  else
    stand.doing = unready_ == 0 ? Account::Doing::kFinishing : Account::Doing::kBetween;
  return stand;
}

Account Reducer::account() const try {
  const Stand stand = failed_at_ ? *failed_at_ : this->stand();
  Account account;
  account.rank = membership_.group->rank();
  account.size = membership_.group->size();
  account.source = source_;
  account.doing = stand.doing;
  account.pass = stand.pass;
  if (stand.doing != Account::Doing::kIdle && stand.next_bucket < buckets_.size()) {
    account.next_bucket = static_cast<int>(stand.next_bucket);
    const bool armed =
        stand.doing == Account::Doing::kArmed;  // the slots are those of the last pass
    for (const std::size_t slot : buckets_[stand.next_bucket].slots)
      each_part(slots_[slot], [&](const Part& part) {
        if (armed || !(slots_[slot].ready || part.came))
          account.missing.add(part.parameter->name());
      });
  }
  account.failure = stand.failure;
  if (!poison_.ok()) account.failure = poison_.failure();
  const std::vector<TraceEntry> entries = trace_.entries();
  account.collectives.reserve(entries.size());
  for (const TraceEntry& entry : entries) {
    AccountedCollective& c = account.collectives.emplace_back();
    c.sequence = entry.sequence;
    c.pass = entry.pass;
    c.what = told(entry.what);
    c.op = name_of(entry.op);
    c.dtype = entry.dtype;
    c.state = told(entry.state);
    c.bucket = entry.bucket;
    c.count = entry.count;
    c.layout_hash = entry.layout_hash;
    c.launched_us = microseconds(entry.launched);
    c.completed_us = microseconds(entry.completed);
    if (entry.bucket == kNone || entry.layout_hash != layout_.hash) continue;
    for (const BucketMember& member :
         layout_.buckets[static_cast<std::size_t>(entry.bucket)].members)
      c.parameters.add(infos_[member.parameter].name);
  }
  account.next_sequence = trace_.next_sequence();
  return account;
} catch (const std::bad_alloc&) {
  Account nothing;  // but who it is
  nothing.rank = membership_.group->rank();
  nothing.size = membership_.group->size();
  nothing.source = source_;
  return nothing;
}

// Before anything is cleaned up: later it is not known any more where the pass stood.
void Reducer::note_failure(const Failure& failure) {
  if (failed_at_) return;
  failed_at_ = stand();
  failed_at_->failure = failure;
}

Result<Diagnosis> Reducer::diagnose(platform::Duration patience) const try {
  FailureBoard board(membership_.store, membership_.group->rank(), membership_.group->size());
  Account own = account();
  // A failure has done so, memory permitting. The first account stays: before the last failure it
  // would be one that is out of date when peers read it.
  if (!poison_.ok()) board.publish(own);
  return lockstep::diagnose(board.accounts(std::move(own), platform::Deadline::in(patience)));
} catch (const std::bad_alloc&) {
  return failed(out_of_memory());
}

}  // namespace lockstep::inline LOCKSTEP_NS
