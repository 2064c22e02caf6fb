// Sweeps: one rank of three fails at every place where something can fail, at one place in each
// run, until a run has no failure. Claims (P12, F1, F2, F4): no rank hangs; every survivor receives
// the cause; after a reset, with the same and with fewer ranks, steps are exact.
// out_of_memory_test.cc tests memory that runs out, and reducer_failure_test.cc single failures.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <stdexcept>

#include "reducer/comm/forwarding_group.h"
#include "reducer/hooks/builtin_hooks.h"
#include "reducer/hooks/power_sgd_hook.h"
#include "reducer/tensor/sparse.h"
#include "reducer/test_ranks.h"

namespace lockstep::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kSweptRanks = 3;
constexpr int kSweptRank = 1;
constexpr int kSteps = 3;  // The buckets are rebuilt within these steps, too.
constexpr int kParameters = 4;

// Says at each visit of a place whether this is the one at which to fail.
class Fuse {
 public:
  explicit Fuse(int at) : left_(at) {}
  bool burns() { return left_.fetch_sub(1) == 0; }
  bool burnt() const { return left_.load() < 0; }

 private:
  std::atomic<int> left_;
};

[[noreturn]] void blow() { throw std::runtime_error("the fuse has blown"); }

// A user's own hook on a parameter, before or after the reducer's.
class ThrowingHook final : public GradientHook {
 public:
  ThrowingHook(Fuse& fuse, bool arriving) : fuse_(fuse), arriving_(arriving) {}
  Status gradient_arriving(Parameter&, std::size_t, GraphTask&) override {
    if (arriving_ && fuse_.burns()) blow();
    return {};
  }
  Status gradient_ready(Parameter&, std::size_t, GraphTask&) override {
    if (!arriving_ && fuse_.burns()) blow();
    return {};
  }

 private:
  Fuse& fuse_;
  const bool arriving_;
};

class ThrowingCommunication final : public CommunicationHook {
 public:
  enum class In { kStart, kFinish };
  ThrowingCommunication(Fuse& fuse, In in, std::shared_ptr<CommunicationHook> inner)
      : fuse_(fuse), in_(in), inner_(std::move(inner)) {}
  std::string name() const override { return "sum"; }
  Status start(HookBucket& bucket) override {
    if (in_ == In::kStart && fuse_.burns()) blow();
    return inner_->start(bucket);
  }
  Result<Tensor> finish(HookBucket& bucket) override {
    if (in_ == In::kFinish && fuse_.burns()) blow();
    return inner_->finish(bucket);
  }

 private:
  Fuse& fuse_;
  const In in_;
  const std::shared_ptr<CommunicationHook> inner_;
};

// Fails a collective, at its start or after it has run.
class FailingGroup final : public ForwardingGroup {
 public:
  enum class When { kAtStart, kAtEnd };
  FailingGroup(std::shared_ptr<ProcessGroup> inner, Fuse& fuse, When when)
      : ForwardingGroup(std::move(inner)), fuse_(fuse), when_(when) {}
  ~FailingGroup() override {
    if (waiting_.joinable()) waiting_.join();
  }
  FailingGroup(const FailingGroup&) = delete;
  FailingGroup& operator=(const FailingGroup&) = delete;

  Status start(const Collective& collective, Work& work) override {
    const std::int64_t sequence = next_sequence_++;
    if (!fuse_.burns()) return ForwardingGroup::start(collective, work);
    Failure failure;
    failure.code = Code::kTransport;
    failure.detail = "the fuse has blown";
    failure.definite = true;
    failure.rank = rank();
    note_collective(failure, collective, sequence);
    if (when_ == When::kAtStart) return failure;
    LOCKSTEP_RETURN_IF_ERROR(ForwardingGroup::start(collective, run_));
    work.begin(sequence);
    waiting_ = std::thread([this, failure, &work] {
      run_.wait(platform::Deadline::never()).ignore();
      work.complete(failure);
    });
    return {};
  }

 private:
  Fuse& fuse_;
  const When when_;
  std::int64_t next_sequence_ = 0;
  Work run_;
  std::thread waiting_;
};

enum class Place { kArriving, kReady, kNode, kHookStart, kHookFinish, kCollective, kCollectiveEnd };

enum class With { kNothing, kSparse, kJoin, kBuffers, kVerified, kPowerSgd };

struct Setting {
  const char* name;
  bool dynamic = false;
  bool is_static = false;
  bool views = false;
  bool rebuild = false;
  Schedule schedule = Schedule::kOverlapped;
  With with = With::kNothing;

  // Whether there is one parameter more than the small ones: a table, or a matrix, each in a bucket
  // of its own.
  bool has_large() const { return with == With::kSparse || with == With::kPowerSgd; }
  int parameters() const { return kParameters + (has_large() ? 1 : 0); }
  int hooked_buckets() const { return with == With::kPowerSgd ? 3 : 2; }
  // The number of collectives from construction to the last step.
  int collectives() const {
    int count = 1 + 2 * kSteps;
    if (dynamic) count += kSteps;
    if (is_static) count += 1;
    if (rebuild) count += 1;
    // The numbers of rows, the row numbers, and the values.
    if (with == With::kSparse) count += 3 * kSteps;
    if (with == With::kJoin) count += kSteps;  // The exchange of the join state in each pass.
    // One at construction, and one before each pass.
    if (with == With::kBuffers) count += 1 + kSteps;
    if (with == With::kPowerSgd) count += 2 * kSteps;  // Both sums of the matrix.
    return count;
  }
};

constexpr Setting with(const char* name, With what) {
  return {name, false, false, false, false, Schedule::kOverlapped, what};
}

constexpr Setting kSettings[] = {
    {"plain"},
    {"dynamic", true},
    {"static", false, true},
    {"plain, views, rebuilt", false, false, true, true},
    {"dynamic, views, rebuilt", true, false, true, true},
    {"after backward", false, false, false, false, Schedule::kAfterBackward},
    with("sparse", With::kSparse),
    with("join", With::kJoin),
    with("buffers", With::kBuffers),
    with("verified", With::kVerified),
    with("PowerSGD", With::kPowerSgd),
};

ReducerOptions options_of(const Setting& setting) {
  ReducerOptions options = quick_options(setting.dynamic, {16});  // A bucket has two parameters.
  options.static_graph = setting.is_static;
  options.gradient_as_bucket_view = setting.views;
  options.rebuild_buckets = setting.rebuild;
  options.schedule = setting.schedule;
  options.coalesced_bytes = 16;
  options.failure_grace = seconds(10);  // A cause is always there before that.
  if (setting.with == With::kPowerSgd) options.hook = make_power_sgd_hook({1, 1});
  if (setting.with == With::kVerified) {
    options.reduction = Reduction::kRankOrdered;
    options.verify_payload = true;
  }
  return options;
}

// One rank of a run: its model, and the place where it fails.
class Rank {
 public:
  Rank(int rank, const Setting& setting, Place place, Fuse& fuse)
      : rank_(rank),
        setting_(setting),
        place_(place),
        fuse_(fuse),
        hook_(fuse, place == Place::kArriving),
        replica_(0, static_cast<std::uint64_t>(rank) + 1) {
    for (int i = 0; i < kParameters; ++i) replica_.add("p" + std::to_string(i));
    ParameterSpec large;
    large.shape = Shape::row_major({6, 7});
    if (setting.with == With::kSparse) large.gradients = Parameter::Gradients::kSparse;
    if (setting.has_large()) replica_.add("large", large);
    // The hook runs before the reducer's own hooks on half of the parameters, and after them on the
    // others.
    for (std::size_t i = 0; hooks() && i < replica_.parameters.size(); i += 2)
      replica_.parameters[i]->add_hook(&hook_, i);
  }
  ~Rank() {
    for (const auto& p : replica_.parameters) p->remove_hook(&hook_);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  Status create(Membership membership, ReducerOptions options) {
    if (place_ == Place::kHookStart || place_ == Place::kHookFinish) {
      using In = ThrowingCommunication::In;
      const In in = place_ == Place::kHookStart ? In::kStart : In::kFinish;
      const auto inner = options.hook ? options.hook : make_all_reduce_hook();
      options.hook = std::make_shared<ThrowingCommunication>(fuse_, in, inner);
    }
    if (place_ == Place::kCollective || place_ == Place::kCollectiveEnd) {
      using When = FailingGroup::When;
      const When when = place_ == Place::kCollective ? When::kAtStart : When::kAtEnd;
      membership.group = std::make_shared<FailingGroup>(membership.group, fuse_, when);
    }
    if (setting_.with == With::kBuffers)
      options.buffers = {make_ref<Buffer>("buffer", replica_.tensor({1.0 + rank_}))};
    LOCKSTEP_RETURN_IF_ERROR(replica_.create(std::move(membership), std::move(options)));
    if (setting_.with == With::kJoin) LOCKSTEP_RETURN_IF_ERROR(replica_.parallel->begin_join());
    for (std::size_t i = 1; hooks() && i < replica_.parameters.size(); i += 2)
      replica_.parameters[i]->add_hook(&hook_, i);
    return {};
  }

  // Every rank has another gradient; each parameter is below a node of its own.
  Status step() {
    replica_.undefine_grads();
    std::vector<Edge> edges;
    for (const auto& p : replica_.parameters) {
      const bool is_large = p->name() == "large";
      edges.push_back({replica_.node({{p, 0}},
                                     [this, is_large](auto in, auto out, const auto&) {
                                       if (place_ == Place::kNode && fuse_.burns()) blow();
                                       out[0] = is_large ? large_gradient() : in[0];
                                       return Status();
                                     }),
                       0});
    }
    const auto outputs = replica_.forward({{replica_.fan(std::move(edges)), 0}});
    LOCKSTEP_RETURN_IF_ERROR(std::move(replica_.forward_status));
    return replica_.backward(outputs, Values{3.0 * (rank_ + 1), -8});
  }

  void expect_exact(const std::vector<int>& members) const {
    const auto factor = factor_of(DType::kFloat32, static_cast<int>(members.size()));
    double first = 0;
    double second = 0;
    for (const int r : members) {
      first = rounded(DType::kFloat32, first + rounded(DType::kFloat32, 3.0 * (r + 1) * factor));
      second = rounded(DType::kFloat32, second + rounded(DType::kFloat32, -8 * factor));
    }
    for (int i = 0; i < kParameters; ++i) {
      const Ref<Parameter>& p = replica_.parameters[static_cast<std::size_t>(i)];
      EXPECT_EQ(values_of(p->grad()), (Values{first, second})) << p->name();
    }
    if (!setting_.has_large()) return;
    // Every rank sends a row with the same number, or a matrix that consists of that row and zeros.
    const Tensor& large = replica_.parameters.back()->grad();
    const Values values = values_of(large);
    if (setting_.with == With::kSparse) {
      EXPECT_EQ(values, Values(7, first));
      ASSERT_EQ(large.rows().size(), 1u);
      EXPECT_EQ(large.rows()[0], kRow);
      return;
    }
    // The matrix has rank 1, so only rounding loses anything.
    for (std::size_t e = 0; e < values.size(); ++e)
      EXPECT_NEAR(values[e], e / 7 == kRow ? first : 0, 1e-5);
  }

  // The parameters of the failure are those of its bucket (F2).
  void expect_members(const Failure& failure) const {
    const Layout& layout = replica_.parallel->reducer().layout();
    std::vector<std::string> members;
    for (const BucketMember& member :
         layout.buckets.at(static_cast<std::size_t>(failure.bucket)).members)
      members.push_back(replica_.parameters[member.parameter]->name());
    EXPECT_EQ(failure.parameters, members);
  }

  DataParallel& parallel() { return *replica_.parallel; }
  bool created() const { return replica_.parallel != nullptr; }

 private:
  static constexpr std::size_t kRow = 4;
  Tensor large_gradient() {
    const Values row(7, 3.0 * (rank_ + 1));
    if (setting_.with == With::kSparse) {
      const Tensor made = *empty_sparse(replica_.devices[0], DType::kFloat32,
                                        replica_.parameters.back()->shape(), {kRow});
      for (std::size_t i = 0; i < 7; ++i) set_element(DType::kFloat32, made.data(), i, row[i]);
      return made;
    }
    Values values(42, 0.0);
    std::copy(row.begin(), row.end(), values.begin() + kRow * 7);
    return Tensor(replica_.tensor(values).storage(), 0, DType::kFloat32, Shape::row_major({6, 7}));
  }
  bool hooks() const { return place_ == Place::kArriving || place_ == Place::kReady; }

  const int rank_;
  const Setting& setting_;
  const Place place_;
  Fuse& fuse_;
  ThrowingHook hook_;
  TestRank replica_;
};

bool is_collective(Place place) {
  return place == Place::kCollective || place == Place::kCollectiveEnd;
}

// Checks what F2 demands of a survivor's error, and of that of the rank that failed, in this step.
void expect_cause(const Status& status, const Rank& rank, int number, Place place, int step) {
  ASSERT_FALSE(status.ok());
  const Failure& failure = status.failure();
  EXPECT_EQ(failure.code, is_collective(place) ? Code::kTransport : Code::kUserFailure)
      << status.to_string();
  EXPECT_EQ(failure.rank, kSweptRank) << status.to_string();
  EXPECT_EQ(failure.reported_by, number);
  EXPECT_TRUE(failure.definite);
  EXPECT_EQ(failure.pass, step) << status.to_string();
  EXPECT_NE(failure.detail.find("the fuse has blown"), std::string::npos) << status.to_string();
  const bool has_collective = number != kSweptRank || is_collective(place);
  EXPECT_TRUE(!has_collective || !failure.collective.empty()) << status.to_string();
  EXPECT_EQ(failure.sequence >= 0, !failure.collective.empty()) << status.to_string();
  // The failure concerns one parameter, not a bucket.
  if (place == Place::kArriving || place == Place::kReady) {
    EXPECT_EQ(failure.parameters.size(), 1u) << status.to_string();
    EXPECT_EQ(failure.bucket, kNone) << status.to_string();
  } else {
    EXPECT_EQ(failure.bucket == kNone, failure.parameters.empty()) << status.to_string();
    if (failure.bucket != kNone) rank.expect_members(failure);
  }
  const std::string own = "rank " + std::to_string(number) + " saw: ";
  const bool is_told = !failure.later.empty() && failure.later[0].starts_with(own);
  EXPECT_EQ(is_told, number != kSweptRank) << status.to_string();
}

// The faulty rank has no reducer. The others hear of the cause if it was the failure of a
// collective that had started.
void expect_lost(const Status& status, bool is_reported) {
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), is_reported ? Code::kTransport : Code::kPeerLost) << status.to_string();
  EXPECT_EQ(status.failure().rank, kSweptRank) << status.to_string();
}

// All three ranks train until one fails at the k-th visit of the place; then all continue in new
// groups. Returns false if there was no failure.
bool run(const Setting& setting, Place place, int k, int survivors) {
  const auto first = local_memberships(kSweptRanks);
  const auto later = local_memberships(survivors);
  Fuse fuse(k);
  Fuse never(1 << 30);
  std::atomic<int> constructed{0};
  std::atomic<int> failed_step{kNone};
  // True if the faulty rank has no reducer, and others may have one.
  std::atomic<bool> is_lone{false};
  std::barrier all_have_trained(kSweptRanks);
  const ReducerOptions options = options_of(setting);
  on_ranks(kSweptRanks, [&](int r) {
    Rank rank(r, setting, place, r == kSweptRank ? fuse : never);
    ReducerOptions own = options;
    // Each rank needs its own.
    if (setting.with == With::kPowerSgd) own.hook = make_power_sgd_hook({1, 1});
    const Status made = rank.create(first[static_cast<std::size_t>(r)], std::move(own));
    if (!made.ok()) {  // The agreement failed, so there is no reducer that could be reset.
      EXPECT_TRUE(is_collective(place)) << made.to_string();
      if (r == kSweptRank) is_lone = true;
      first[static_cast<std::size_t>(r)].group->abort(made);
      return all_have_trained.arrive_and_drop();
    }
    ++constructed;
    Status status;
    int step = 0;
    for (; status.ok() && step < kSteps; ++step) {
      status = rank.step();
      if (status.ok()) rank.expect_exact({0, 1, 2});
    }
    if (!status.ok()) {
      if (r == kSweptRank) failed_step = step - 1;
      const bool is_launched = rank.parallel().reducer().launched_in_pass() > 0;
      EXPECT_EQ(!rank.parallel().poisoned().ok(),
                r != kSweptRank || is_collective(place) || is_launched)
          << status.to_string();
      if (rank.parallel().poisoned().ok())
        rank.parallel().abort(status);  // Peers would not notice anything otherwise (P12).
      EXPECT_EQ(rank.step().code(), Code::kPoisoned);
    }
    all_have_trained.arrive_and_wait();
    if (is_lone) return expect_lost(status, place == Place::kCollectiveEnd);
    if (!fuse.burnt()) return;
    if (!status.ok()) expect_cause(status, rank, r, place, failed_step);
    // In the last step the others may have all sums before the faulty rank fails with its own work
    // on them.
    EXPECT_TRUE(r != kSweptRank || !status.ok());
    EXPECT_TRUE(!status.ok() || place == Place::kHookFinish || place == Place::kCollectiveEnd);
    const int new_rank = survivors == kSweptRanks || r < kSweptRank ? r : r - 1;
    if (survivors < kSweptRanks && r == kSweptRank) return;
    const Status reset = rank.parallel().reset(later[static_cast<std::size_t>(new_rank)]);
    ASSERT_TRUE(reset.ok()) << reset.to_string();
    for (int again = 0; again < kSteps; ++again) {
      const Status trained = rank.step();
      ASSERT_TRUE(trained.ok()) << trained.to_string();
      rank.expect_exact(survivors == kSweptRanks ? std::vector<int>{0, 1, 2}
                                                 : std::vector<int>{0, 2});
    }
  });
  EXPECT_TRUE(constructed == 0 || constructed == kSweptRanks || is_collective(place));
  return fuse.burnt();
}

// Returns the number of places; each is tried with the same and with fewer ranks afterwards.
int sweep(const Setting& setting, Place place) {
  int k = 0;
  for (const int survivors : {kSweptRanks, kSweptRanks - 1}) {
    for (k = 0; k < 1000; ++k) {
      SCOPED_TRACE(std::string(setting.name) + ", visit " + std::to_string(k) + ", then " +
                   std::to_string(survivors) + " ranks");
      if (!run(setting, place, k, survivors)) break;
      if (::testing::Test::HasFailure()) return k;
    }
  }
  return k;
}

TEST(FailureSweep, P12F2F4AnExceptionBeforeOrAfterAnyAccumulator) {
  for (const Setting& setting : kSettings) {
    EXPECT_EQ(sweep(setting, Place::kArriving), setting.parameters() * kSteps) << setting.name;
    EXPECT_EQ(sweep(setting, Place::kReady), setting.parameters() * kSteps) << setting.name;
  }
}

TEST(FailureSweep, P12F2F4AnExceptionInAnyNode) {
  for (const Setting& setting : kSettings)
    EXPECT_EQ(sweep(setting, Place::kNode), setting.parameters() * kSteps) << setting.name;
}

TEST(FailureSweep, S4F2F4AnExceptionInAnyCallOfACommunicationHook) {
  for (const Setting& setting : kSettings) {
    EXPECT_EQ(sweep(setting, Place::kHookStart), setting.hooked_buckets() * kSteps);
    EXPECT_EQ(sweep(setting, Place::kHookFinish), setting.hooked_buckets() * kSteps);
  }
}

// The places are the agreement, every bucket, usage map and order of buckets, and what else a
// setting sends.
TEST(FailureSweep, F2F4AnyCollectiveThatDoesNotStart) {
  for (const Setting& setting : kSettings)
    EXPECT_EQ(sweep(setting, Place::kCollective), setting.collectives()) << setting.name;
}

TEST(FailureSweep, F2F4AnyCollectiveThatFailsWhenItHasRun) {
  for (const Setting& setting : kSettings)
    EXPECT_EQ(sweep(setting, Place::kCollectiveEnd), setting.collectives()) << setting.name;
}

// The reducer is destroyed at every point of a pass at which no backward runs (F5): after it is
// armed, and after the first k hooks. (In dynamic mode the first backward ends the pass, so there
// the only point is after arming. In static mode that is so in the first pass.)
TEST(FailureSweep, F5DestructionOfAnArmedPassAndAfterAnyHookLeavesNothing) {
  for (const Setting& setting : kSettings) {
    for (int k = 0; k < (setting.dynamic ? 1 : kParameters); ++k) {
      SCOPED_TRACE(std::string(setting.name) + ", after " + std::to_string(k) + " hooks");
      auto group = std::make_shared<ScriptedGroup>();
      TestRank rank;
      for (int i = 0; i < kParameters; ++i) rank.add("p" + std::to_string(i));
      ASSERT_TRUE(rank.create({group, std::make_shared<HashStore>()}, options_of(setting)).ok());
      if (setting.is_static && k > 0) {
        EXPECT_TRUE(rank.backward(rank.forward_of(rank.parameters), 1).ok());
      }
      group->stalls = true;
      auto outputs = rank.forward_of(rank.parameters);
      const std::vector<Edge> roots(outputs.begin(), outputs.begin() + k);
      if (k > 0) {
        EXPECT_TRUE(rank.backward(roots, 1).ok());  // The rest is left to a later backward.
        EXPECT_EQ(rank.parallel->flight_record().doing, FlightRecord::Doing::kBetween);
      }
      const auto deadline = platform::Deadline::in(seconds(20));
      rank.parallel.reset();
      EXPECT_FALSE(deadline.passed());
      EXPECT_EQ(group->in_flight(), 0u);
      EXPECT_EQ(group.use_count(), 1);
      const int sums = group->sums();
      std::vector<Edge> own;
      for (const auto& p : rank.parameters) own.push_back({p, 0});
      EXPECT_TRUE(rank.backward(own, 1).ok());  // A hook that was left here would be called.
      EXPECT_EQ(group->sums(), sums);
      outputs.clear();
      rank.undefine_grads();
      EXPECT_EQ(rank.devices[0].allocated_bytes(), 0u);
    }
  }
}

// Makes a future that nobody completes, beside its sum.
class PendingHook final : public CommunicationHook {
 public:
  std::string name() const override { return "pending"; }
  Status start(HookBucket& bucket) override {
    futures_.push_back(bucket.future());
    return bucket.all_reduce(bucket.flat());
  }
  Result<Tensor> finish(HookBucket& bucket) override { return bucket.flat(); }

 private:
  std::vector<std::shared_ptr<Work>> futures_;
};

enum class Kind { kPendingHook, kReplicas, kSparse, kVerified };

ReducerOptions options_of(Kind kind, const std::vector<Ref<Parameter>>& copies) {
  ReducerOptions options = quick_options(false);
  if (kind == Kind::kPendingHook) options.hook = std::make_shared<PendingHook>();
  if (kind == Kind::kReplicas) options.replicas = {{copies, {}}};
  if (kind == Kind::kVerified) {
    options.reduction = Reduction::kRankOrdered;
    options.verify_payload = true;
  }
  return options;
}

// Like the test above, where more is in flight, or saved. Of sparse parameters the entries are
// saved.
TEST(FailureSweep, F5DestructionAfterAnyHookWithOtherKindsOfWork) {
  for (const Kind kind : {Kind::kPendingHook, Kind::kReplicas, Kind::kSparse, Kind::kVerified}) {
    const int parts = kind == Kind::kReplicas ? 2 * kParameters : kParameters;
    for (int k = 0; k < parts; ++k) {
      SCOPED_TRACE(std::to_string(static_cast<int>(kind)) + ", after " + std::to_string(k) +
                   " hooks");
      auto group = std::make_shared<ScriptedGroup>();
      TestRank rank;
      ParameterSpec spec;
      if (kind == Kind::kSparse) spec.gradients = Parameter::Gradients::kSparse;
      for (int i = 0; i < kParameters; ++i) rank.add("p" + std::to_string(i), spec);
      std::vector<Ref<Parameter>> all = rank.parameters;
      std::vector<Ref<Parameter>> copies;
      for (int i = 0; kind == Kind::kReplicas && i < kParameters; ++i) {
        copies.push_back(make_ref<Parameter>("copy " + std::to_string(i), rank.devices[0],
                                             DType::kFloat32, spec.shape, true,
                                             rank.engine.next_sequence()));
        all.push_back(copies.back());
      }
      const Status made =
          rank.create({group, std::make_shared<HashStore>()}, options_of(kind, copies));
      ASSERT_TRUE(made.ok()) << made.to_string();
      group->stalls = group->stalls_gathering = true;
      const auto train = [&](const std::vector<Edge>& roots) {
        std::vector<Tensor> gradients;
        for (std::size_t i = 0; i < roots.size(); ++i)
          gradients.push_back(
              kind == Kind::kSparse
                  ? *empty_sparse(rank.devices[0], DType::kFloat32, spec.shape, {1, 1})
                  : rank.tensor({1, 2}));
        return rank.engine.backward(roots, gradients, false);
      };
      // The last parameter is the first bucket.
      std::vector<Edge> outputs = rank.forward_of({all.rbegin(), all.rend()});
      const Status status = train({outputs.begin(), outputs.begin() + k});
      EXPECT_TRUE(status.ok()) << status.to_string();  // The rest is left to a later backward.
      const int expected = kind == Kind::kReplicas ? std::max(0, k - kParameters) : k;
      EXPECT_EQ(group->in_flight(), static_cast<std::size_t>(expected));
      const auto deadline = platform::Deadline::in(seconds(20));
      rank.parallel.reset();
      EXPECT_FALSE(deadline.passed());
      EXPECT_EQ(group->in_flight(), 0u);
      EXPECT_EQ(group.use_count(), 1);
      const std::size_t started = group->started.size();
      std::vector<Edge> own;
      for (const auto& p : all) own.push_back({p, 0});
      EXPECT_TRUE(train(own).ok());  // A hook that was left here would be called.
      EXPECT_EQ(group->started.size(), started);
      outputs.clear();
      own.clear();
      for (const auto& p : all) p->undefine_grad();
      EXPECT_EQ(rank.devices[0].allocated_bytes(), 0u);
    }
  }
}

}  // namespace
}  // namespace lockstep::testing
