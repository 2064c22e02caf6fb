// This component checks what a reducer does when its group fails (reducer/failure.cc). Chance
// draws the failure, and what else happens in that step: a node fails, or the user aborts. The
// groups of a program seldom fail in a collective of another reducer, ahead of the rank, or with
// numbers that no collective has.
//
// It judges what F2 and P12 promise of the error that the step raises, of the cause with which
// the rank ends its group, and of the report that its peers read: they name the rank, the pass,
// and a bucket only if the failure is one of that bucket, with the names of its parameters; the
// first cause is kept, and later ones are attached; and where nothing was launched the group
// goes on.
//
// Threads: a fiber of the simulator; others may run meanwhile.
#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "properties/components/checks.h"
#include "properties/components/group_failure_plan.h"
#include "reducer/base/check.h"
#include "reducer/base/status.h"
#include "reducer/comm/store.h"
#include "reducer/data_parallel.h"
#include "reducer/device/host/host_device.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

using namespace group_failure;

constexpr int kLeaves = 4;

// One step of one rank, and what it left.
class FailureCase {
 public:
  explicit FailureCase(Plan plan) : plan_(std::move(plan)), engine_(0) {
    if (plan_.has_two_groups) second_ = std::make_shared<FailingGroup>(plan_.rank, plan_.size);
    for (int i = 0; i < kLeaves; ++i)
      parameters_.push_back(make_ref<Parameter>("p" + std::to_string(i), device_, DType::kFloat32,
                                                Shape::row_major({2}), true,
                                                engine_.next_sequence()));
  }

  std::string judge() {
    construct();
    const bool is_of_first = plan_.has_buffer && plan_.at == 0;
    FailingGroup& failing = second_ && !is_of_first ? *second_ : *group_;
    failing_ = &failing;
    const int before = second_ && !is_of_first && plan_.has_buffer ? 1 : 0;
    failing.fail(plan_.at - before, plan_.by, plan_.failure,
                 [this](Failure& failure, const Collective& collective, std::int64_t sequence) {
                   name_place(failure, collective, sequence);
                 });
    has_acted_ = false;
    return flaw_of(step(plan_.user));
  }

  // The user aborts the reducer itself for a cause that may have come up elsewhere (F5): before a
  // step, behind its forward, or between two backwards of it. Then the reducer is destroyed.
  enum class When { kBefore, kBehindForward, kBetween };
  std::string judge_abort(const Failure& cause, When when) {
    construct();
    failing_ = group_.get();
    const std::vector<Edge> outputs = train_until(when);
    parallel_->abort(Status(cause));
    const Failure want = aborted_with(cause);
    const auto flaw_of_one = [&](const char* of, const Failure& is) -> std::string {
      const bool is_right = is.code == want.code && is.rank == want.rank && is.definite &&
                            is.suspect == want.suspect && is.detail == want.detail &&
                            is.reported_by == plan_.rank && is.bucket == kNone;
      return is_right ? ""
                      : std::string("a user has aborted a reducer for: ") + cause.to_string() +
                            "; and " + of + " is: " + is.to_string();
    };
    const auto text = store_->get(key(), platform::Deadline::in({}));
    const std::optional<Failure> told = text ? read_failure(*text, plan_.size) : std::nullopt;
    if (!told) return "a user has aborted a reducer, and its peers cannot read why";
    if (std::string flaw = flaw_of_one("what peers read", *told); !flaw.empty()) return flaw;
    for (const auto& group : {group_, second_ ? second_ : group_}) {
      if (group->ended_for().ok()) return "a reducer was aborted, and not its group";
      if (std::string flaw = flaw_of_one("the cause of its group", group->ended_for().failure());
          !flaw.empty())
        return flaw;
    }
    const Status again(Code::kUserFailure, "the user gives up once more");
    parallel_->abort(again);  // The first cause stays.
    if (std::string flaw = flaw_of_one("its error", parallel_->poisoned().failure()); !flaw.empty())
      return flaw;
    if (step(User::kNothing).code() != Code::kPoisoned)
      return "a reducer works on that was aborted";
    if (when == When::kBefore || plan_.is_dynamic) return {};  // it is destroyed as it is
    const Status status = backward(outputs.front());
    if (status.ok()) return "a backward succeeds whose reducer was aborted";
    return flaw_of_one("the error of its backward", status.failure());
  }

  // The reducer is destroyed behind a forward, or between two backwards of its pass. It ends its
  // group if peers wait in the pass for buckets that this rank will never launch (F5).
  std::string judge_destruction(When when) {
    construct();
    const std::vector<Edge> outputs = train_until(when);
    const bool is_in_pass = parallel_->flight_record().doing == FlightRecord::Doing::kBetween;
    const std::int64_t launched = is_in_pass ? parallel_->reducer().launched_in_pass() : 0;
    parallel_.reset();
    const bool has_ended = !group_->ended_for().ok();
    if (has_ended == (launched > 0)) return {};
    return "a reducer is destroyed in a pass in which it has launched " + std::to_string(launched) +
           " collectives, and its group " + (has_ended ? "has ended" : "goes on");
  }

 private:
  static constexpr std::int64_t kPass = 1;  // the number of the pass in which things happen

  void construct() {
    ReducerOptions options;
    options.find_unused_parameters = plan_.is_dynamic;
    options.bucket_limits = {plan_.bucket_bytes};
    options.coalesced_bytes = plan_.bucket_bytes;
    options.rebuild_buckets = false;
    options.failure_grace = {};
    if (plan_.has_two_groups) options.schedule = Schedule::kAfterBackward;
    if (plan_.has_buffer) options.buffers = {make_ref<Buffer>("b", tensor())};
    auto made =
        DataParallel::create(parameters_, engine_, std::move(options), {group_, store_, second_});
    LOCKSTEP_CHECK(made.has_value());
    parallel_ = std::move(*made);
    LOCKSTEP_CHECK(step(User::kNothing).ok());
  }

  Tensor tensor() {
    Tensor made = *Tensor::empty(device_, DType::kFloat32, Shape::row_major({2}));
    std::memset(made.data(), 0, 2 * sizeof(float));
    return made;
  }

  // Peers receive the cause as one of this rank, for certain. Where it came up in another group and
  // names another rank, they suspect that rank, unless that one only had lost a peer without a
  // name. An error of uneven inputs names the rank that is out of inputs.
  Failure aborted_with(const Failure& cause) const {
    Failure want = cause;
    const auto is_of_group = [this](int rank) { return rank >= 0 && rank < plan_.size; };
    const bool has_lost_a_peer = cause.code == Code::kPeerLost && cause.definite;
    if (!is_of_group(cause.suspect)) want.suspect = kNone;
    const bool keeps_rank = cause.code == Code::kUnevenInputs && is_of_group(cause.rank);
    if (keeps_rank) return want;
    want.rank = plan_.rank;
    const bool is_of_another = is_of_group(cause.rank) && cause.rank != plan_.rank;
    if (cause.suspect == kNone && is_of_another && !has_lost_a_peer) want.suspect = cause.rank;
    return want;
  }

  std::string key() const { return "failure/" + std::to_string(plan_.rank); }

  // The last two parameters are ready first. Then the node runs in which the user may do something.
  Status forward(std::vector<Edge>& outputs, User user) {
    const auto module = [&](std::vector<Edge>& edges) {
      const auto to = [&](int i) { return Edge{parameters_[static_cast<std::size_t>(i)], 0}; };
      std::vector<Edge> behind = {to(0), to(1)};
      const Ref<Node> inner(
          new FanNode(engine_, std::move(behind), [this, user] { return act(user); }));
      std::vector<Edge> all = {{inner, 0}, to(2), to(3)};
      edges.push_back({Ref<Node>(new FanNode(engine_, std::move(all))), 0});
      return Status();
    };
    return parallel_->forward(module, outputs);
  }

  // The second output leads to the parameters that are ready first.
  Status forward_in_two(std::vector<Edge>& outputs) {
    const auto module = [&](std::vector<Edge>& edges) {
      for (std::size_t i = 0; i < kLeaves; i += 2) {
        std::vector<Edge> both = {{parameters_[i], 0}, {parameters_[i + 1], 0}};
        edges.push_back({Ref<Node>(new FanNode(engine_, std::move(both))), 0});
      }
      return Status();
    };
    return parallel_->forward(module, outputs);
  }

  // Returns the outputs that no backward has used.
  std::vector<Edge> train_until(When when) {
    std::vector<Edge> outputs;
    if (when != When::kBefore) LOCKSTEP_CHECK(forward_in_two(outputs).ok());
    if (when == When::kBetween) {
      LOCKSTEP_CHECK(backward(outputs.back()).ok());
      outputs.pop_back();
    }
    return outputs;
  }

  Status backward(const Edge& output) {
    const std::vector<Edge> roots = {output};
    const std::vector<Tensor> gradients = {tensor()};
    return engine_.backward(roots, gradients, false);
  }

  Status step(User user) {
    std::vector<Edge> outputs;
    LOCKSTEP_RETURN_IF_ERROR(forward(outputs, user));
    return backward(outputs.front());
  }

  Status act(User user) {
    has_acted_ = true;
    was_failed_before_act_ = failing_ != nullptr && failing_->has_failed();
    switch (user) {
      case User::kNothing:
        return {};
      case User::kThrows:
        throw std::runtime_error("the user's node threw");
      case User::kTimesOut:
        return Status(Code::kTimeout, "the user's node waited in vain");
      case User::kAborts:
        group_->abort(Status(Code::kUserFailure, "the user gives up"));
        return {};
    }
    return {};
  }

  void name_place(Failure& failure, const Collective& collective, std::int64_t sequence) const {
    const auto of_bucket = [&](std::int64_t reducer, std::int64_t pass, int bucket) {
      failure.collective = name_of(Op::kAllReduceSum);
      failure.sequence = sequence;
      failure.reducer_id = reducer;
      failure.pass = pass;
      failure.bucket = bucket;
    };
    const std::int64_t own = collective.reducer_id;
    const int buckets = static_cast<int>(parallel_->reducer().layout().buckets.size());
    switch (plan_.place) {
      case Place::kHere:
        return;  // the group notes the collective
      case Place::kAgreement:
        failure.collective = name_of(Op::kAllGather);
        failure.sequence = 1;
        return;
      case Place::kUsageMap:
        return of_bucket(own, kPass, kNone);
      case Place::kOther:
        return of_bucket(own + 1, 90, 0);
      case Place::kAhead:
        return of_bucket(own, kPass + 1, 0);
      case Place::kBeyond:
        return of_bucket(own, kPass, buckets);
      case Place::kNowhere:
        failure.rank = failure.suspect = kStranger;
        failure.pass = failure.bucket = -kStranger;
        return;
    }
  }

  // Which error is the first one: that of the group, that of the user's node, or that of the user
  // who has aborted the group.
  enum class First { kNone, kGroup, kNode, kAbort };
  First first() const {
    const First of_group = failing_->has_failed() ? First::kGroup : First::kNone;
    const bool acts_first = has_acted_ && !was_failed_before_act_;
    if (!acts_first || plan_.user == User::kNothing) return of_group;
    if (plan_.user != User::kAborts) return First::kNode;
    if (!second_) return First::kAbort;
    // The other group goes on. If it then fails as its peers have noticed the abort, that comes
    // first; if this rank has an error of its own, that error does.
    const bool follows = of_group == First::kGroup && plan_.by != By::kRefusal &&
                         concerns_group(plan_.failure.code) && !plan_.failure.definite;
    return follows ? First::kAbort : of_group;
  }

  struct Expected {
    Code code = Code::kOk;
    std::string detail;
    int rank = kNone;
    std::int64_t pass = kPass;
    int bucket = kNone;
  };

  Expected expected(First first) const {
    Expected out;
    out.rank = plan_.rank;
    if (first == First::kAbort) {
      out.code = Code::kUserFailure;
      out.detail = "the user gives up";
      return out;
    }
    if (first == First::kNode) {
      out.code = plan_.user == User::kThrows ? Code::kUserFailure : Code::kTimeout;
      out.detail = "the user's node";
      return out;
    }
    const Failure& told = *failing_->named();
    out.code = told.code;
    out.detail = told.detail;
    if (plan_.place != Place::kNowhere && told.rank != kNone) out.rank = told.rank;
    if (plan_.place != Place::kNowhere && told.rank == kNone) out.rank = told.suspect;
    const bool is_own = told.rank == kNone && told.suspect == kNone;
    // An error that does not concern the group arose here.
    if (is_own && !concerns_group(told.code)) out.rank = plan_.rank;
    const bool is_from_peer = told.code == Code::kAborted && out.rank != plan_.rank;
    const int here = failing_->failed()->bucket;
    switch (plan_.place) {
      case Place::kHere:
        out.bucket = here;
        break;
      case Place::kAhead:
        if (!is_from_peer) out.pass = kPass + 1;
        out.bucket = 0;
        break;
      default:
        break;
    }
    return out;
  }

  // Returns what is wrong with an error that names the cause `want`, or an empty text.
  std::string flaw_of_cause(First which, const Expected& want, const Failure& failure) const {
    if (failure.code != want.code) return "is of another cause";
    if (failure.pass != want.pass) return "names another pass";
    // Where a peer has aborted the group, the rank says in which bucket it was itself; and where
    // its own user has, which bucket it could not start.
    const bool is_own_bucket =
        which == First::kAbort || (want.code == Code::kAborted && want.rank != plan_.rank);
    if (!is_own_bucket && failure.bucket != want.bucket)
      return "names another bucket than " + std::to_string(want.bucket);
    return flaw_of_names(failure);
  }

  std::string flaw_of(const Status& status) {
    const First which = first();
    if (which == First::kNone) return status.ok() ? "" : wrong("a step fails", status);
    if (status.ok()) return "a step succeeds in which its group or a node failed";
    const Expected want = expected(which);
    const Failure& raised = status.failure();
    if (std::string flaw = flaw_of_cause(which, want, raised); !flaw.empty())
      return wrong("the error of a step " + flaw, status);
    if (raised.reported_by != plan_.rank) return wrong("an error is of another rank", status);
    if (std::string flaw = flaw_of_record(status); !flaw.empty()) return wrong(flaw, status);
    if (parallel_->poisoned().ok()) return flaw_of_use(which, status);
    const Status& end = group_->ended_for();
    if (end.ok()) return wrong("a rank has failed, and has not ended its group", status);
    if (std::string flaw = flaw_of_report(want); !flaw.empty()) return wrong(flaw, status);
    const Failure& cause = end.failure();
    if (std::string flaw = flaw_of_cause(which, want, cause); !flaw.empty())
      return wrong("the cause for which a rank ends its group " + flaw, end);
    if (cause.detail.find(want.detail) == std::string::npos)
      return wrong("a cause has another text", end);
    if (cause.rank != want.rank)
      return wrong("the cause is of rank " + std::to_string(want.rank), end);
    const bool is_alone = plan_.size == 1;
    if (is_alone && (raised.rank != cause.rank || raised.suspect != cause.suspect))
      return wrong("a rank that is alone raises another error than its own", status);
    const bool is_followed = which == First::kGroup && has_acted_ && was_failed_before_act_ &&
                             (plan_.user == User::kThrows || plan_.user == User::kTimesOut);
    const auto says_it = [](const std::string& line) {
      return line.find("the user's node") != std::string::npos;
    };
    if (is_followed && std::none_of(cause.later.begin(), cause.later.end(), says_it))
      return wrong("the cause does not have what followed", end);
    return {};
  }

  std::string flaw_of_use(First which, const Status& status) {
    const bool may_go_on =
        parallel_->reducer().launched_in_pass() == 0 &&
        (which == First::kNode || (which == First::kGroup && plan_.by == By::kRefusal));
    if (!may_go_on) return wrong("a reducer can be used after its group has failed", status);
    const bool is_users = plan_.user == User::kAborts && has_acted_;
    if (!is_users && !group_->ended_for().ok())
      return wrong("a group was ended that can be used", status);
    failing_->go_on();
    if (is_users || step(User::kNothing).ok()) return {};
    return wrong("a step fails behind one that has launched nothing", status);
  }

  // The peers read what the rank has reported first.
  std::string flaw_of_report(const Expected& want) const {
    const auto text = store_->get(key(), platform::Deadline::in({}));
    if (!text) return "a rank has failed, and has not told its peers";
    const std::optional<Failure> told = read_failure(*text, plan_.size);
    if (!told) return "a rank has told its peers what they cannot read";
    if (told->code != want.code || told->rank != want.rank || told->reported_by != plan_.rank)
      return "a rank has told its peers another cause: " + told->to_string();
    return {};
  }

  // The rank's flight record has its failure (T1).
  std::string flaw_of_record(const Status& raised) const {
    const std::optional<Failure> own = parallel_->flight_record().failure;
    if (own && own->to_string() == raised.to_string()) return {};
    return "the flight record of a rank that has failed has another failure";
  }

  // A bucket and its parameters are named together (F2).
  std::string flaw_of_names(const Failure& failure) const {
    std::vector<std::string> names;
    if (failure.bucket != kNone) {
      const Reducer& reducer = parallel_->reducer();
      const auto& buckets = reducer.layout().buckets;
      if (static_cast<std::size_t>(failure.bucket) >= buckets.size())
        return "names a bucket that there is not";
      for (const BucketMember& member : buckets[static_cast<std::size_t>(failure.bucket)].members)
        names.push_back(reducer.parameter_infos()[member.parameter].name);
    }
    return failure.parameters == names ? "" : "names other parameters than its bucket has";
  }

  std::string wrong(const std::string& what, const Status& status) const {
    std::string text = what + ": " + status.to_string();
    if (failing_->has_failed()) text += "\n  the group said: " + failing_->named()->to_string();
    return text;
  }

  const Plan plan_;
  HostDevice device_;
  Engine engine_;
  std::vector<Ref<Parameter>> parameters_;
  const std::shared_ptr<FailingGroup> group_ =
      std::make_shared<FailingGroup>(plan_.rank, plan_.size);
  std::shared_ptr<FailingGroup> second_;
  FailingGroup* failing_ = nullptr;  // the one of the two that fails
  const std::shared_ptr<Store> store_ = std::make_shared<HashStore>();
  std::unique_ptr<DataParallel> parallel_;
  bool has_acted_ = false;
  bool was_failed_before_act_ = false;
};

}  // namespace

std::string check_abort(Choices& choices) {
  constexpr Code kCodes[] = {Code::kUserFailure, Code::kTimeout,      Code::kPeerLost,
                             Code::kPeerLost,    Code::kUnevenInputs, Code::kAborted};
  const Plan plan = drawn_plan(choices);
  const auto rank = [&] {
    const int drawn = static_cast<int>(choices.below(static_cast<std::uint32_t>(plan.size) + 2));
    if (drawn == plan.size) return choices.percent(50) ? kStranger : plan.size;
    return drawn > plan.size ? kNone : drawn;
  };
  Failure cause;
  cause.code = kCodes[choices.below(6)];
  cause.detail = "what the user has met elsewhere";
  cause.rank = rank();
  cause.suspect = choices.percent(50) ? rank() : kNone;
  cause.definite = choices.percent(50);
  if (choices.percent(30)) cause.bucket = -kStranger;
  if (choices.percent(30)) cause.pass = -kStranger;
  const auto when = static_cast<FailureCase::When>(choices.below(3));
  if (std::string flaw = FailureCase(plan).judge_abort(cause, when); !flaw.empty()) return flaw;
  return FailureCase(plan).judge_destruction(when);
}

std::string check_group_failure(Choices& choices) {
  return FailureCase(drawn_plan(choices)).judge();
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
