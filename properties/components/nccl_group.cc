#include "properties/components/nccl_group.h"

#include "properties/components/nccl_group_payloads.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

using namespace group_check;

class GroupCheck : GroupPayloads {
 public:
  using GroupPayloads::GroupPayloads;

  std::string run() {
    const std::uint32_t which = of_.scenario;
    using Scenario = void (GroupCheck::*)();
    constexpr std::array<Scenario, kGroupScenarios> kScenarios{
        &GroupCheck::user_gives_up,       &GroupCheck::calls_fail_on_two,
        &GroupCheck::rank_is_silent,      &GroupCheck::rank_has_left,
        &GroupCheck::rank_is_late,        &GroupCheck::nothing_is_taken,
        &GroupCheck::sum_is_lost,         &GroupCheck::rank_does_not_come,
        &GroupCheck::rank_cannot_connect, &GroupCheck::nobody_is_excluded,
        &GroupCheck::others_go_on,        &GroupCheck::report_is_damaged_or_slow,
        &GroupCheck::shrunk_while_busy,   &GroupCheck::abort_takes_long,
        &GroupCheck::leaving_takes_long,  &GroupCheck::rank_does_not_shrink,
        &GroupCheck::many_are_queued,     &GroupCheck::payloads_are_checked,
        &GroupCheck::notes_are_damaged,   &GroupCheck::one_more_is_started};
    here() = {};
    store_->damages = store_->damages_id = false;
    store_->delay = Duration(0);
    culprit_ = static_cast<int>(chance_.below(static_cast<std::uint32_t>(of_.size)));
    is_culprit_ = culprit_ == of_.rank;
    options_ = at_first_;
    options_.name = name_ = fmt::format("{}/{}", of_.name, which);
    options_.keeps_for_shrink = chance_.percent(50);
    draw_ = chance_.below(12);
    (this->*kScenarios[which])();
    meet("end");
    if (!wrong_.empty())
      wrong_ = fmt::format("a group of {} ranks (scenario {}, rank {} is another one): rank {} {}",
                           of_.size, which, culprit_, of_.rank, wrong_);
    return wrong_;
  }

  // What the rank has drawn.
  const Choices& choices() const { return chance_; }

 private:
  // ---- Scenarios ----

  // All ranks learn soon who has given up, and why (F5).
  void user_gives_up() {
    auto group = connected();
    if (group == nullptr) return;
    // The user may pass on what another group has failed with. Its ranks may be other ones (F7).
    Failure cause;
    cause.code = Code::kUserFailure;
    cause.detail = kWords;
    const bool is_of_other_group = draw_ % 3 == 0;
    if (is_of_other_group) {
      cause.code = Code::kPeerLost;
      cause.rank = (culprit_ + 1) % of_.size;
      cause.suspect = draw_ < 6 ? kNone : cause.rank;
    }
    if (is_culprit_) {
      virtual_sleep(kWhile);
      group->abort(Status(cause));
      const int rank = is_of_other_group ? cause.rank : culprit_;
      expect_told(group->health(), {cause.code, rank, {}, kWords, !is_of_other_group});
      expect_kept(*group);
    } else {
      const int suspect = cause.suspect == kNone ? culprit_ : cause.suspect;
      const std::string words = fmt::format("rank {} aborted the group: ", culprit_);
      expect_both_told(*group, {Code::kAborted, culprit_, suspect, words}, false, soon());
      expect_told(group->health(), {Code::kAborted, culprit_, suspect, kWords});
    }
    end_failed(std::move(group));
  }

  // The first error is the cause on all ranks; the second rank attaches what it saw itself.
  void calls_fail_on_two() {
    const bool is_header = draw_ < 6;
    const int second = (culprit_ + 1) % of_.size;
    auto group = connected();
    if (group == nullptr) return;
    here().result = kOwnErrors[draw_ % kOwnErrors.size()].result;
    if (is_culprit_) here().fails = is_header ? "ncclAllGather" : "ncclAllReduce";
    if (of_.rank == second) {
      virtual_sleep(kWhile);
      here().fails = "ncclAllGather";
    }
    const std::string_view name = kOwnErrors[draw_ % kOwnErrors.size()].name;
    const std::string words = is_header ? "the exchange of headers" : "ncclAllReduce";
    expect_both_told(*group, {Code::kTransport, culprit_, {}, words, true}, true, soon());
    const Status status = group->health();
    if (!status.ok())
      expect(status.failure().detail.find(fmt::format("({})", name)) != std::string::npos,
             fmt::format("does not say '{}'", name), status);
    if (of_.rank == second && !status.ok())
      expect(attaches(status.failure(), fmt::format("rank {}: ", second)),
             "does not attach what it saw itself", status);
    end_failed(std::move(group));
  }

  // The other ranks agree on one cause. The silent rank, whose call fails then, knows better, and
  // attaches what the others say.
  void rank_is_silent() {
    auto group = connected();
    if (group == nullptr) return;
    if (is_culprit_) {
      virtual_sleep(kTimeout + kWhile);
      here().fails = "ncclAllGather";
      expect_both_told(*group, {Code::kTransport, culprit_, {}, "the exchange of headers", true},
                       true, soon());
    } else {
      expect_both_told(*group, {Code::kTimeout, {}, kNone, kUnentered}, true, after_timeout());
    }
    const Status status = group->health();
    const Failure failure = status.ok() ? Failure() : status.failure();
    if (is_culprit_)
      expect(attaches(failure, "not done within"), "does not attach what the others say", status);
    const auto causes = meet("cause", std::to_string(failure.rank));
    for (int rank = 0; rank < of_.size && !is_culprit_; ++rank)
      if (rank != culprit_)
        expect(causes[static_cast<std::size_t>(rank)] == std::to_string(failure.rank),
               fmt::format("names another rank than rank {}", rank), status);
    end_failed(std::move(group));
  }

  // A rank that waits for one that has left has an error that says so.
  void rank_has_left() {
    options_.keeps_for_shrink = false;  // what hides errors cannot be revoked
    auto group = connected();
    if (group == nullptr) return;
    if (draw_ < 6) sum_well(*group);
    meet("summed");
    if (is_culprit_) {
      end_idle(std::move(group));
      meet("left");
      static_cast<void>(meet("failed"));
      return;
    }
    here().hides_errors = true;
    meet("left");
    const std::string words = fmt::format("{}; rank {} has left the group", kUnentered, culprit_);
    // A further call would return the error.
    expect_both_told(*group, {Code::kTimeout, {}, culprit_, words}, true, after_timeout(), 1);
    end_failed(std::move(group));
  }

  // A collective that is queued waits for those before it, and has its own time then (F1).
  void rank_is_late() {
    auto group = connected();
    if (group == nullptr) return;
    constexpr Duration kMost = kTimeout * 6 / 10;
    Started first;
    Started second;
    const std::uint64_t before = group->progress();
    if (is_culprit_) virtual_sleep(kMost);
    first.start(*group);
    if (is_culprit_) virtual_sleep(kMost);
    second.start(*group);
    const Status one = end_of(*group, first);
    expect(one.ok(), "cannot wait for a rank that is late", one);
    const std::uint64_t between = group->progress();
    const Status other = end_of(*group, second);
    expect(other.ok(), "gives its second sum less than a timeout", other);
    expect(before != between, "has made no progress with its first sum");
    if (wrong_.empty()) end_idle(std::move(group));
  }

  // More collectives are queued than a group submits at once, or has memory for at first. They end
  // in their order when the last rank comes; if it gives up instead, each error names its own.
  void many_are_queued() {
    const bool gives_up = draw_ < 4;
    auto group = connected();
    if (group == nullptr) return;
    std::vector<Started> all(20 + chance_.below(20));
    const std::uint64_t before = group->progress();
    if (is_culprit_) virtual_sleep(kWhile);
    if (is_culprit_ && gives_up) group->abort(Status(Code::kUserFailure, kWords));
    for (std::size_t i = 0; i < all.size() && !(is_culprit_ && gives_up); ++i) {
      all[i].value = static_cast<float>(i + 1);
      all[i].start(*group);
    }
    for (std::size_t i = 0; i < all.size() && !(is_culprit_ && gives_up); ++i) {
      const Status status = end_of(*group, all[i]);
      const auto number = static_cast<std::int64_t>(i);
      if (gives_up) {
        expect_told(status, {Code::kAborted, culprit_, culprit_, kWords});
        expect(status.ok() || status.failure().sequence == number, "names another collective",
               status);
        continue;
      }
      expect(status.ok(), fmt::format("has an error of collective {}", i), status);
      const float right = static_cast<float>(i + 1) * static_cast<float>(of_.size);
      expect(all[i].value == right, fmt::format("has a wrong sum of collective {}", i));
      expect(i == 0 || all[i].work.completed_at() >= all[i - 1].work.completed_at(),
             "ends collectives in another order");
      expect(all[i].work.sequence() == number, "numbers collectives differently");
    }
    if (gives_up) return end_failed(std::move(group));
    expect(group->progress() - before == all.size(), "counts other collectives as ended");
    meet("summed");
    end_idle(std::move(group));
  }

  void nothing_is_taken() {
    auto group = connected();
    if (group == nullptr) return;
    here().takes_nothing = is_culprit_;
    if (!is_culprit_) virtual_sleep(kWhile);
    // Nothing else happens in the group that would make it look.
    const std::size_t count = is_culprit_ ? 1 : 2;
    expect_both_told(
        *group, {Code::kTimeout, culprit_, kNone, "; NCCL has not taken it yet"}, true,
        [this](Duration took, const Status& status) {
          expect_timeout(is_culprit_ ? took : took + kWhile, status);
        },
        count);
    end_failed(std::move(group));
  }

  // The headers have said that all are in it.
  void sum_is_lost() {
    auto group = connected();
    if (group == nullptr) return;
    here().loses_sums = is_culprit_;
    if (is_culprit_) {
      Started sum;
      sum.start(*group);
      const Status status = end_of(*group, sum);
      expect(status.ok(), "cannot do what NCCL does at once", status);
    } else {
      expect_both_told(*group, {Code::kTimeout, {}, kNone, "; all ranks have entered it"}, true,
                       after_timeout());
    }
    end_failed(std::move(group));
  }

  void rank_does_not_come() {
    if (is_culprit_) return;
    const Duration begun = platform::now();
    const auto made = connect();
    const Status status = made ? Status() : made.error();
    const std::string words =
        culprit_ == 0 ? std::string() : fmt::format("; rank {} has not come", culprit_);
    expect_told(status, {Code::kTimeout, {}, culprit_, words});
    if (culprit_ != 0 && !status.ok())
      expect(status.failure().detail.ends_with(words), "misses other ranks, too", status);
    expect_timeout(platform::now() - begun, status);
  }

  // The communicator's id is damaged on its way from rank 0.
  void id_is_damaged() {
    store_->damages_id = true;
    const Duration begun = platform::now();
    const auto made = connect();
    const Status status = made ? Status() : made.error();
    expect_told(status, {Code::kPeerLost, {}, {}, "a peer has ended the group, and "});
    expect_soon(platform::now() - begun, status);
  }

  void rank_cannot_connect() {
    if (culprit_ == 0 && draw_ > 9) return id_is_damaged();
    const bool has_no_id = culprit_ == 0 && draw_ < 6;
    const std::string words = has_no_id ? "ncclGetUniqueId" : "ncclCommInitRankConfig";
    const OwnError error = kOwnErrors[draw_ % kOwnErrors.size()];
    constexpr const char* kLastError = "something is broken";
    if (is_culprit_) {
      here().fails = words;
      here().result = error.result;
      here().last_error = kLastError;
    }
    const Duration begun = platform::now();
    const auto made = connect();
    const Status status = made ? Status() : made.error();
    expect_told(status, {Code::kTransport, culprit_, {}, words, true});
    expect_told(status, {Code::kTransport,
                         culprit_,
                         {},
                         fmt::format("({}); NCCL's last error: {}", error.name, kLastError),
                         true});
    expect_soon(platform::now() - begun, status);
  }

  // A rank that goes on alone has nobody to compare anything with.
  void goes_on_alone(std::unique_ptr<NcclProcessGroup> group) {
    meet("summed");
    if (!is_culprit_) return end_idle(std::move(group));
    std::vector<int> others;
    for (int rank = 0; rank < of_.size; ++rank)
      if (rank != culprit_) others.push_back(rank);
    options_.name += "/alone";
    auto alone = NcclProcessGroup::shrink(*group, others, store_, options_);
    if (!expect(alone.has_value(), "cannot go on alone", alone ? Status() : alone.error())) return;
    expect((*alone)->rank() == 0 && (*alone)->size() == 1, "is not alone");
    const int before = here().gathers;
    sum_well(**alone);
    expect(here().gathers == before, "gathers headers of no other rank");
    end_idle(std::move(group));
    end_idle(std::move(*alone));
  }

  // A smaller group of all ranks is a new one.
  void nobody_is_excluded() {
    auto group = connected();
    if (group == nullptr) return;
    sum_well(*group);
    if (draw_ < 6) return goes_on_alone(std::move(group));
    options_.name += "/again";
    auto again = NcclProcessGroup::shrink(*group, {}, store_, options_);
    if (!expect(again.has_value(), "cannot make its group anew", again ? Status() : again.error()))
      return;
    expect((*again)->origin() == std::string_view("ncclCommInitRankConfig"),
           fmt::format("says that '{}' made its communicator", (*again)->origin()));
    end_idle(std::move(group));
    sum_well(**again);
    meet("summed");
    end_idle(std::move(*again));
  }

  // A rank that is late itself suspects nobody: those that have left had done their part (F2).
  void expect_own_timeout(NcclProcessGroup& group, Started& started) {
    const Status status = end_of(group, started);
    expect_told(status, {Code::kTimeout, of_.rank, kNone, "; all ranks have entered it"});
    expect_timeout(started.took(), status);
    if (status.ok()) return;
    expect(status.failure().detail.find("has left") == std::string::npos,
           "says that a rank has left that had done its part", status);
  }

  // The ranks that are done make a smaller group, or leave, while the last rank is still in the
  // last collective.
  void others_go_on() {
    const bool shrinks = draw_ < 5;
    const bool is_too_late = draw_ > 8;
    auto group = connected();
    if (group == nullptr) return;
    const bool is_last = of_.rank == of_.size - 1;
    if (is_last) here().delay = is_too_late ? kTimeout + kWhile : kWhile;
    Started started;
    started.value = of_.rank == 0 ? 5.0F : 0.0F;
    started.start(*group, Op::kBroadcast);
    if (is_last && is_too_late) return expect_own_timeout(*group, started);
    if (!is_last || !shrinks) {
      const Status status = end_of(*group, started);
      expect(status.ok() && started.value == 5.0F, "cannot take part in a broadcast", status);
    }
    if (!shrinks) return end_idle(std::move(group));
    if (is_last) {
      const Status status = end_of(*group, started);
      expect(status.ok() && started.value == 5.0F,
             "has lost what it was sent before the others made a smaller group", status);
      return end_idle(std::move(group));
    }
    options_.name += "/smaller";
    auto smaller = NcclProcessGroup::shrink(*group, {of_.size - 1}, store_, options_);
    if (!expect(smaller.has_value(), "cannot make a smaller group",
                smaller ? Status() : smaller.error()))
      return;
    end_idle(std::move(group));
    sum_well(**smaller);
  }

  // Nobody needs the report to learn that the rank is lost.
  void report_is_damaged_or_slow() {
    const bool is_slow = draw_ < 6 && of_.notices_lost_peers;
    options_.keeps_for_shrink = options_.keeps_for_shrink && !is_slow;
    auto group = connected();
    if (group == nullptr) return;
    if (is_culprit_) {
      if (is_slow) store_->delay = kTimeout * 8 / 10;
      store_->damages = !is_slow;
      virtual_sleep(kWhile);
      group->abort(Status(Code::kUserFailure, kWords));
    } else {
      const int suspect = of_.size == 2 ? culprit_ : kNone;
      const std::string words = is_slow ? "" : "a peer has ended the group, and ";
      expect_both_told(*group, {Code::kPeerLost, kNone, suspect, words}, is_slow, soon());
    }
    end_failed(std::move(group));
  }

  // The rank that the others have left starts one more collective, also as the first one of all.
  void one_more_is_started() {
    const int last = of_.size - 1;
    auto group = connected();
    if (group == nullptr) return;
    for (std::uint32_t i = 0; i < draw_ % 3; ++i) sum_well(*group);
    meet("summed");
    if (of_.rank == last) {
      meet("smaller");
      Started sum;
      sum.start(*group);
      const Status status = end_of(*group, sum);
      expect_told(status, {Code::kAborted, {}, {}, "makes a smaller group"});
      expect_soon(sum.took(), status);
      if (!status.ok())
        expect(status.failure().rank >= 0 && status.failure().rank < last,
               "does not name a rank that has made a smaller group", status);
      static_cast<void>(meet("failed"));
      return;
    }
    options_.name += "/smaller";
    auto smaller = NcclProcessGroup::shrink(*group, {last}, store_, options_);
    meet("smaller");
    static_cast<void>(meet("failed"));
    if (!expect(smaller.has_value(), "cannot make a smaller group",
                smaller ? Status() : smaller.error()))
      return;
    group.reset();
    sum_well(**smaller);
  }

  // Where one rank has something in flight, all ranks end the old group as one that has failed.
  void shrunk_while_busy() {
    options_.keeps_for_shrink = true;
    auto group = connected();
    if (group == nullptr) return;
    sum_well(*group);
    meet("summed");
    const bool is_last = of_.rank == of_.size - 1;
    if (is_last) {
      meet("smaller");
      group.reset();
      return;
    }
    Started started;
    if (of_.rank == 0) started.start(*group);
    virtual_sleep(kWhile);
    options_.name += "/smaller";
    auto smaller = NcclProcessGroup::shrink(*group, {of_.size - 1}, store_, options_);
    if (of_.rank == 0) {
      expect(started.work.done(), "has made a smaller group, and something is in flight");
      // Another rank may have begun before.
      expect_told(end_of(*group, started), {Code::kAborted, {}, {}, "makes a smaller group"});
    }
    meet("smaller");
    if (!expect(smaller.has_value(), "cannot make a smaller group",
                smaller ? Status() : smaller.error()))
      return;
    if (api_.comm_shrink != nullptr && api_.comm_revoke != nullptr)
      expect((*smaller)->origin() == std::string_view("ncclCommShrink"),
             "has not kept its communicator for a smaller group");
    if (here().flags != kNone)
      expect(here().flags == kNcclShrinkAbort, "lets NCCL shrink as if nothing were in flight");
    sum_well(**smaller);
    group.reset();
    expect(here().destroyed == 0 && here().aborted == 1,
           "destroys a communicator that has something in flight on another rank");
    smaller->reset();
  }

  // The last rank leaves, and one of the others makes no smaller group: the ranks that wait for it
  // suspect it.
  void rank_does_not_shrink() {
    const int absent = culprit_ % (of_.size - 1);
    auto group = connected();
    if (group == nullptr) return;
    options_.name += "/smaller";
    if (of_.rank != absent && of_.rank != of_.size - 1) {
      const Duration begun = platform::now();
      auto smaller = NcclProcessGroup::shrink(*group, {of_.size - 1}, store_, options_);
      const Status status = smaller ? Status() : smaller.error();
      expect_told(status, {Code::kTimeout, {}, absent, ""});
      expect_timeout(platform::now() - begun, status);
    }
    meet("smaller");
  }

  // A rank whose communicator is not aborted in time ends all the same, and says what goes on. The
  // memory of its collective may be released then; it is not given out while the GPU uses it (F8).
  void abort_takes_long() {
    options_.keeps_for_shrink = false;
    options_.end_timeout = kTimeout / 5;
    const int silent = (culprit_ + 1) % of_.size;
    auto group = connected();
    if (group == nullptr) return;
    if (is_culprit_) here().abort_takes = 3 * options_.end_timeout;
    if (of_.rank == silent) {
      meet("failed");
      return;
    }
    Result<Ref<Storage>> memory = gpu_.allocate(sizeof(float));
    if (!expect(memory.has_value(), "has no memory", memory ? Status() : memory.error())) return;
    Started sum;
    sum.collective.device = &gpu_;
    sum.collective.data = (*memory)->data();
    sum.collective.verify = draw_ < 6;
    sum.collective.ready = gpu_.record(gpu_.current_stream());
    sum.start(*group);
    if (is_culprit_) {
      virtual_sleep(kWhile);
      group->abort(Status(Code::kUserFailure, kWords));
    }
    const Status status = end_of(*group, sum);
    *memory = {};
    expect_soon(sum.took(), status);
    const Code code = is_culprit_ ? Code::kUserFailure : Code::kAborted;
    const std::optional<int> suspect = is_culprit_ ? kNone : culprit_;
    expect_told(status, {code, culprit_, suspect, kWords, is_culprit_});
    const Failure failure = status.ok() ? Failure() : status.failure();
    const std::string words = fmt::format(
        "ncclCommAbort did not return within {} ms: memory of what was in flight must "
        "not be used again",
        options_.end_timeout / milliseconds(1));
    expect(attaches(failure, words) == is_culprit_, "does not say, or says, that its abort goes on",
           status);
    end_failed(std::move(group));
  }

  // A communicator that cannot be finalized in time is aborted.
  void leaving_takes_long() {
    options_.end_timeout = kTimeout;
    auto group = connected();
    if (group == nullptr) return;
    sum_well(*group);
    meet("summed");
    if (!is_culprit_) return end_idle(std::move(group));
    here().takes_nothing = true;
    const Duration begun = platform::now();
    group.reset();
    expect_timeout(platform::now() - begun, Status());
    expect(here().destroyed == 0 && here().aborted == 1,
           fmt::format("ends a communicator that cannot be finalized with {} of ncclCommDestroy "
                       "and {} of ncclCommAbort",
                       here().destroyed, here().aborted));
  }

  // ---- Notes ----

  // What nobody has written who has left, or made a smaller group, is no reason to fail, and nobody
  // is suspected for it (F2).
  void notes_are_damaged() {
    const bool is_about_leaving = draw_ < 3;
    const std::string of_no_rank = fmt::format("{} 0", of_.size);
    const std::array<std::string, 6> of_shrinks{"", "x", "-1 0", "0 -1", of_no_rank, of_no_rank};
    const std::array<std::string, 3> of_leaving{"", "x", "-1"};
    const std::uint32_t which = chance_.below(6);
    const std::string& note = is_about_leaving ? of_leaving[which % 3] : of_shrinks[which];
    options_.keeps_for_shrink = false;
    auto group = connected();
    if (group == nullptr) return;
    const std::string key = is_about_leaving ? fmt::format("/left/{}", culprit_) : "/shrinks";
    if (is_culprit_) static_cast<void>(store_->set(name_ + key, note));
    meet("written");
    if (!is_about_leaving) {
      if (is_culprit_) virtual_sleep(kWhile);  // The other ranks look meanwhile.
      sum_well(*group);
      meet("summed");
      return end_idle(std::move(group));
    }
    here().hides_errors = true;
    if (!is_culprit_) {
      Started sum;
      sum.start(*group);
      const Status status = end_of(*group, sum);
      expect_told(status, {Code::kTimeout, {}, kNone, kUnentered});
      if (!status.ok())
        expect(status.failure().detail.find("has left") == std::string::npos,
               "says that a rank has left that has not", status);
    }
    end_failed(std::move(group));
  }
};

}  // namespace

std::string check_nccl_group(const NcclApi& api, Device& gpu, std::shared_ptr<Store> store,
                             const GroupOfCheck& of, Choices& choices) {
  GroupCheck check(api, gpu, std::move(store), of, choices);
  std::string flaw = check.run();
  choices = check.choices();
  return flaw;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
