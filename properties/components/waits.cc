// This component checks that whoever waits for a collective learns how and when it ended
// (reducer/comm/process_group.h). Its groups go on for a while and then end their collective, or
// stop for ever. A caller gets the collective's own result as soon as there is one; it does not
// give up while the groups go on, and it gives up some time after they have stopped (F1). The
// error must say in which collective the failure arose, and which rank aborted its group for it
// (F2, F5, F7).
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "properties/components/checks.h"
#include "properties/components/virtual_sleep.h"
#include "reducer/comm/process_group.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

using platform::Deadline;
using platform::Duration;
using std::chrono::milliseconds;
using std::chrono::seconds;

// A group that enforces no deadline. What it runs ends when somebody says so.
class ScriptedGroup final : public ProcessGroup {
 public:
  explicit ScriptedGroup(Duration timeout) : timeout_(timeout) {}
  int rank() const override { return 0; }
  int size() const override { return 2; }
  bool can_reduce(DType) const override { return true; }
  Status start(const Collective&, Work& work) override {
    work.begin(kSequence);
    work_ = &work;
    return {};
  }
  void abort(const Status& cause) override {
    ++aborts_;
    end(cause);
  }
  Duration timeout() const override { return timeout_; }
  std::uint64_t progress() const override { return progress_; }

  void go_on() { ++progress_; }
  void end(const Status& status) {
    if (work_ == nullptr) return;
    std::exchange(work_, nullptr)->complete(status);
    has_ended_ = true;
  }
  // No scheduling point, unlike Work::done().
  bool has_ended() const { return has_ended_; }
  int aborts() const { return aborts_; }

  static constexpr std::int64_t kSequence = 5;

 private:
  const Duration timeout_;
  Work* work_ = nullptr;
  bool has_ended_ = false;
  std::uint64_t progress_ = 0;
  int aborts_ = 0;
};

// Hears whether the collective failed, and whether that was before it was over.
class Observer final : public WorkObserver {
 public:
  explicit Observer(const Work& work) : work_(work) {}
  void failed(const Failure& failure) noexcept override {
    ++heard;
    was_early = !work_.done();
    code = failure.code;
  }
  int heard = 0;
  bool was_early = false;
  Code code = Code::kOk;

 private:
  const Work& work_;
};

class WaitCase {
 public:
  explicit WaitCase(Choices& choices) : chance_(choices) {
    longest_ = seconds(chance_.between(1, 4));
    pause_ = longest_ / chance_.between(2, 4);
    moves_ = chance_.below(12);
    kind_ = static_cast<Kind>(chance_.below(kKinds));
    fails_ = chance_.percent(60);
  }

  std::string judge() { return kind_ == Kind::kStopsInRun ? run_alone() : wait(); }

 private:
  // How the collective ends: after a last pause, at the moment at which the caller gives up, or
  // not before somebody aborts the group.
  enum class Kind : std::uint8_t { kEnds, kEndsAtTheDeadline, kStops, kStopsInRun };
  static constexpr std::uint32_t kKinds = 4;

  bool stops() const { return kind_ == Kind::kStops || kind_ == Kind::kStopsInRun; }
  Status result() const {
    return fails_ ? Status(Code::kTransport, "the collective has failed") : Status();
  }

  // The groups go on one after the other, which takes longer than any timeout.
  void play(ScriptedGroup& one, ScriptedGroup& other) {
    if (kind_ == Kind::kEndsAtTheDeadline) {
      virtual_sleep(deadline_behind(longest_).remaining());
      return one.end(result());
    }
    for (std::uint32_t i = 0; i < moves_; ++i) {
      virtual_sleep(pause_);
      (i % 2 == 0 ? one : other).go_on();
    }
    stopped_ = platform::now();
    if (stops()) return;
    virtual_sleep(pause_);
    one.end(result());
  }

  // A caller gives up when nothing has moved for a timeout, and not much later.
  std::string flaw_of_giving_up(const Status& status) const {
    const Duration since = platform::now() - stopped_;
    if (status.code() != Code::kTimeout) return "it has no timeout: " + status.to_string();
    if (status.failure().sequence != ScriptedGroup::kSequence)
      return "its timeout does not name the collective: " + status.to_string();
    if (since < longest_ || since > 8 * longest_ + seconds(4))
      return fmt::format("it gives up {} ms after the last progress, and the timeout is {} ms",
                         since / milliseconds(1), longest_ / milliseconds(1));
    return {};
  }

  std::string wait() {
    ScriptedGroup one(chance_.percent(50) ? longest_ : longest_ / 3);
    ScriptedGroup other(one.timeout() == longest_ ? longest_ / 2 : longest_);
    Work work;
    Observer observer(work);
    work.observe(observer);
    one.start({}, work).ignore();
    platform::Thread player("wait check", [&] { play(one, other); });
    const Status status = wait_behind(work, {&one, &other});
    const bool has_ended = one.has_ended();
    const Duration ended = platform::now();
    std::string flaw;
    if (has_ended && (status.code() != result().code()))
      flaw = "the collective is over, and it learns: " + status.to_string();
    if (!has_ended && status.code() != Code::kTimeout)
      flaw = "the collective goes on, and it learns: " + status.to_string();
    if (flaw.empty() && kind_ == Kind::kEnds && (!has_ended || work.completed_at() != ended))
      flaw = "it does not wait for a group that goes on, or longer: " + status.to_string();
    if (flaw.empty() && stops()) flaw = flaw_of_giving_up(status);
    player.join();
    one.end(Status(Code::kAborted, "the caller gives up"));
    if (!flaw.empty()) return flaw;
    const Status last = work.wait(Deadline::in({}));
    const bool has_failed = !last.ok();
    if (observer.heard != (has_failed ? 1 : 0))
      return fmt::format("an observer hears {} times of '{}'", observer.heard, last.to_string());
    if (has_failed && (!observer.was_early || observer.code != last.code()))
      return "an observer hears of a failure when the collective is over, or of another one";
    return use_again(work, observer);
  }

  // Nobody observes the next collective.
  static std::string use_again(Work& work, const Observer& observer) {
    const int before = observer.heard;
    work.begin(ScriptedGroup::kSequence + 1);
    if (work.done() || work.sequence() != ScriptedGroup::kSequence + 1)
      return "a Work that is used again does not say that it is in flight";
    if (work.wait(Deadline::in({})).code() != Code::kTimeout)
      return "a Work that is used again has a result too early";
    work.complete(Status(Code::kAborted, "it ends"));
    if (observer.heard != before) return "an observer hears of a collective that is not its own";
    return work.done() && work.wait(Deadline::in({})).code() == Code::kAborted
               ? ""
               : "a Work that is used again has the result of the collective before";
  }

  // Whoever runs a collective ends the group when it gives up.
  std::string run_alone() {
    ScriptedGroup group(longest_);
    platform::Thread player("wait check", [&] { play(group, group); });
    const Status status = run(group, Collective());
    std::string flaw = flaw_of_giving_up(status);
    player.join();
    if (flaw.empty() && group.aborts() != 1)
      flaw = fmt::format("it ends its group {} times when it gives up", group.aborts());
    return flaw;
  }

  Choices& chance_;
  Duration longest_{};
  Duration pause_{};
  std::uint32_t moves_ = 0;
  Kind kind_ = Kind::kEnds;
  bool fails_ = false;
  Duration stopped_{};
};

// ---- What failures name ----

bool are_equal(const Failure& one, const Failure& other) {
  return one.to_string() == other.to_string() && one.reported_by == other.reported_by &&
         one.reducer_id == other.reducer_id && one.definite == other.definite &&
         one.sequence == other.sequence;
}

class NamedFailure {
 public:
  explicit NamedFailure(Choices& choices) : chance_(choices) {
    const auto drawn = [this] { return chance_.percent(50) ? draw(4) : kNone; };
    failure_.code = Code::kTransport;
    failure_.rank = drawn();
    failure_.suspect = drawn();
    failure_.reported_by = drawn();
    failure_.pass = drawn();
    failure_.bucket = drawn();
    failure_.reducer_id = drawn();
    failure_.definite = chance_.percent(50);
    failure_.detail = "a call has failed";
    if (chance_.percent(50)) {
      failure_.collective = "broadcast";
      failure_.sequence = draw(4);
    }
    collective_.op = Op::kAllGather;
    collective_.pass = 4 + draw(4);
    collective_.bucket = 4 + draw(4);
    collective_.reducer_id = 4 + draw(4);
    rank_ = draw(4);
  }

  std::string judge() const {
    for (const auto& [what, right, given] : all())
      if (!are_equal(right, given))
        return fmt::format("{} had to be '{}', and is '{}'", what, right.to_string(),
                           given.to_string());
    return {};
  }

 private:
  struct Pair {
    const char* what;
    Failure right;
    Failure given;
  };

  int draw(std::uint32_t limit) { return static_cast<int>(chance_.below(limit)); }
  std::vector<Pair> all() const { return {in_collective(), aborted_here(), aborted_by_peer()}; }

  // What a failure says stays. A bucket that is known belongs to the reducer that is named.
  Pair in_collective() const {
    Failure right = failure_;
    if (right.collective.empty()) {
      right.collective = "all_gather";
      right.sequence = 9;
      if (right.pass == kNone) right.pass = collective_.pass;
      if (right.bucket == kNone) {
        right.bucket = collective_.bucket;
        right.reducer_id = collective_.reducer_id;
      }
    }
    Failure given = failure_;
    note_collective(given, collective_, 9);
    return {"the failure of a collective", right, given};
  }

  // A user's cause names nothing and nobody, and arose on the rank whose user gives up (F5).
  Pair aborted_here() const {
    Failure right = failure_;
    const bool is_of_user = right.rank == kNone && right.suspect == kNone &&
                            right.reported_by == kNone && right.sequence == kNone;
    if (is_of_user) {
      right.rank = right.reported_by = rank_;
      right.definite = true;
    }
    return {"the cause of a rank that aborts", right, cause_of_abort(failure_, rank_).failure()};
  }

  // Peers learn which rank has aborted, and the rest as text: it may be of another group (F7).
  Pair aborted_by_peer() const {
    Failure right = failure_;
    right.code = Code::kAborted;
    right.rank = rank_;
    right.suspect = failure_.suspect == kNone ? rank_ : failure_.suspect;
    right.definite = false;
    right.detail = fmt::format("rank {} aborted the group: {}", rank_, failure_.to_string());
    return {"what the peers of a rank that aborts learn", right, abort_for_peers(failure_, rank_)};
  }

  Choices& chance_;
  Failure failure_;
  Collective collective_;
  int rank_ = 0;
};

}  // namespace

std::string check_waits(Choices& choices) { return WaitCase(choices).judge(); }

std::string check_names(Choices& choices) { return NamedFailure(choices).judge(); }

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
