// Sweeps: one rank of three fails at every place where something can fail, one place a run, until a
// run is clean. Claims (P12, F1, F2, F4): no rank hangs; every survivor is told the cause; after a
// reset, with the same and with fewer ranks, steps are exact. Memory that runs out:
// out_of_memory_test.cc. Failures one by one: reducer_failure_test.cc.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <stdexcept>

#include "reducer/hooks/builtin_hooks.h"
#include "reducer/tensor/sparse.h"
#include "reducer/test_ranks.h"

namespace lockstep::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kRanks = 3;
constexpr int kFaulty = 1;
constexpr int kSteps = 3;  // in which buckets are rebuilt, too
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
  ThrowingCommunication(Fuse& fuse, In in) : fuse_(fuse), in_(in) {}
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
  const std::shared_ptr<CommunicationHook> inner_ = make_all_reduce_hook();
};

// Fails a collective: at its start, or when it has run.
class FailingGroup final : public ProcessGroup {
 public:
  FailingGroup(std::shared_ptr<ProcessGroup> inner, Fuse& fuse) : inner_(inner), fuse_(fuse) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  bool can_reduce(DType dtype) const override { return inner_->can_reduce(dtype); }
  bool can_scale(DType dtype) const override { return inner_->can_scale(dtype); }
  bool can_verify() const override { return inner_->can_verify(); }
  platform::Duration timeout() const override { return inner_->timeout(); }
  void abort(const Status& cause) override { inner_->abort(cause); }
  Status start(const Collective& collective, Work& work) override {
    if (!fuse_.burns()) return inner_->start(collective, work);
    Failure failure;
    failure.code = Code::kTransport;
    failure.collective = name_of(collective.op);
    failure.detail = "the fuse has blown";
    failure.definite = true;
    failure.rank = rank();
    return failure;
  }

 private:
  const std::shared_ptr<ProcessGroup> inner_;
  Fuse& fuse_;
};

enum class Place { kArriving, kReady, kNode, kHookStart, kHookFinish, kCollective };

struct Setting {
  const char* name;
  bool dynamic = false;
  bool is_static = false;
  bool views = false;
  bool rebuild = false;
  Schedule schedule = Schedule::kOverlapped;
};

constexpr Setting kSettings[] = {
    {"plain"},
    {"dynamic", true},
    {"static", false, true},
    {"plain, views, rebuilt", false, false, true, true},
    {"dynamic, views, rebuilt", true, false, true, true},
    {"after backward", false, false, false, false, Schedule::kAfterBackward},
};

ReducerOptions options_of(const Setting& setting) {
  ReducerOptions options = quick_options(setting.dynamic, {16});  // two parameters in a bucket
  options.static_graph = setting.is_static;
  options.gradient_as_bucket_view = setting.views;
  options.rebuild_buckets = setting.rebuild;
  options.schedule = setting.schedule;
  options.coalesced_bytes = 16;
  options.failure_grace = seconds(10);  // a cause is always there before that
  return options;
}

// One rank of a run: its model, and where it fails.
class Rank {
 public:
  Rank(int rank, Place place, Fuse& fuse)
      : rank_(rank),
        place_(place),
        fuse_(fuse),
        hook_(fuse, place == Place::kArriving),
        replica_(0, static_cast<std::uint64_t>(rank) + 1) {
    for (int i = 0; i < kParameters; ++i) replica_.add("p" + std::to_string(i));
    // Before the reducer's own hooks on half of the parameters, after them on the others.
    for (std::size_t i = 0; hooks() && i < kParameters; i += 2)
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
      options.hook = std::make_shared<ThrowingCommunication>(fuse_, in);
    }
    if (place_ == Place::kCollective)
      membership.group = std::make_shared<FailingGroup>(membership.group, fuse_);
    LOCKSTEP_RETURN_IF_ERROR(replica_.create(std::move(membership), std::move(options)));
    for (std::size_t i = 1; hooks() && i < kParameters; i += 2)
      replica_.parameters[i]->add_hook(&hook_, i);
    return {};
  }

  // Every rank has another gradient; each parameter hangs below a node of its own.
  Status step() {
    replica_.undefine_grads();
    std::vector<Edge> edges;
    for (const auto& p : replica_.parameters)
      edges.push_back({replica_.node({{p, 0}},
                                     [this](auto in, auto out, const auto&) {
                                       if (place_ == Place::kNode && fuse_.burns()) blow();
                                       out[0] = in[0];
                                       return Status();
                                     }),
                       0});
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
    for (const auto& p : replica_.parameters)
      EXPECT_EQ(values_of(p->grad()), (Values{first, second})) << p->name();
  }

  DataParallel& parallel() { return *replica_.parallel; }
  bool created() const { return replica_.parallel != nullptr; }

 private:
  bool hooks() const { return place_ == Place::kArriving || place_ == Place::kReady; }

  const int rank_;
  const Place place_;
  Fuse& fuse_;
  ThrowingHook hook_;
  TestRank replica_;
};

// What F2 asks of a survivor's error, and of that of the rank that failed.
void expect_cause(const Status& status, int rank, Place place) {
  ASSERT_FALSE(status.ok());
  const Failure& failure = status.failure();
  EXPECT_EQ(failure.code, place == Place::kCollective ? Code::kTransport : Code::kUserFailure)
      << status.to_string();
  EXPECT_EQ(failure.rank, kFaulty) << status.to_string();
  EXPECT_EQ(failure.reported_by, rank);
  EXPECT_TRUE(failure.definite);
  EXPECT_NE(failure.pass, kNone) << status.to_string();
  EXPECT_NE(failure.detail.find("the fuse has blown"), std::string::npos) << status.to_string();
}

// All three train until one fails at the k-th visit of the place; then all go on in new groups.
// False: it came to no failure.
bool run(const Setting& setting, Place place, int k, int survivors) {
  const auto first = local_memberships(kRanks);
  const auto later = local_memberships(survivors);
  Fuse fuse(k);
  Fuse never(1 << 30);
  std::atomic<int> constructed{0};
  std::barrier all_have_trained(kRanks);
  on_ranks(kRanks, [&](int r) {
    Rank rank(r, place, r == kFaulty ? fuse : never);
    const Status made = rank.create(first[static_cast<std::size_t>(r)], options_of(setting));
    if (!made.ok()) {  // the agreement failed: there is no reducer that could be reset
      EXPECT_EQ(place, Place::kCollective) << made.to_string();
      first[static_cast<std::size_t>(r)].group->abort(made);
      return all_have_trained.arrive_and_drop();
    }
    ++constructed;
    Status status;
    for (int step = 0; status.ok() && step < kSteps; ++step) {
      status = rank.step();
      if (status.ok()) rank.expect_exact({0, 1, 2});
    }
    if (!status.ok()) {
      expect_cause(status, r, place);
      rank.parallel().abort(status);  // P12: with nothing launched, peers would learn of nothing
      EXPECT_EQ(rank.step().code(), Code::kPoisoned);
    }
    all_have_trained.arrive_and_wait();
    if (!fuse.burnt()) return;
    // In the last step the others may have all sums before one fails with what it does with them.
    EXPECT_TRUE(r != kFaulty || !status.ok());
    EXPECT_TRUE(!status.ok() || place == Place::kHookFinish);
    const int new_rank = survivors == kRanks || r < kFaulty ? r : r - 1;
    if (survivors < kRanks && r == kFaulty) return;
    const Status reset = rank.parallel().reset(later[static_cast<std::size_t>(new_rank)]);
    ASSERT_TRUE(reset.ok()) << reset.to_string();
    for (int step = 0; step < kSteps; ++step) {
      const Status again = rank.step();
      ASSERT_TRUE(again.ok()) << again.to_string();
      rank.expect_exact(survivors == kRanks ? std::vector<int>{0, 1, 2} : std::vector<int>{0, 2});
    }
  });
  EXPECT_TRUE(constructed == 0 || constructed == kRanks || place == Place::kCollective);
  return fuse.burnt();
}

// How many places there are; each is tried with the same and with fewer ranks afterwards.
int sweep(const Setting& setting, Place place) {
  int k = 0;
  for (const int survivors : {kRanks, kRanks - 1}) {
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
    EXPECT_EQ(sweep(setting, Place::kArriving), kParameters * kSteps);
    EXPECT_EQ(sweep(setting, Place::kReady), kParameters * kSteps);
  }
}

TEST(FailureSweep, P12F2F4AnExceptionInAnyNode) {
  for (const Setting& setting : kSettings)
    EXPECT_EQ(sweep(setting, Place::kNode), kParameters * kSteps);
}

TEST(FailureSweep, S4F2F4AnExceptionInAnyCallOfACommunicationHook) {
  for (const Setting& setting : kSettings) {
    EXPECT_EQ(sweep(setting, Place::kHookStart), 2 * kSteps);
    EXPECT_EQ(sweep(setting, Place::kHookFinish), 2 * kSteps);
  }
}

// The agreement, every bucket, usage map and order of buckets.
TEST(FailureSweep, F2F4AnyCollectiveThatDoesNotStart) {
  for (const Setting& setting : kSettings) {
    int collectives = 1 + 2 * kSteps;
    if (setting.dynamic) collectives += kSteps;
    if (setting.is_static) collectives += 1;
    if (setting.rebuild) collectives += 1;
    EXPECT_EQ(sweep(setting, Place::kCollective), collectives) << setting.name;
  }
}

// F5 at every point of a pass at which no backward runs: armed, and after the first k hooks. (In
// dynamic mode the first backward ends the pass, so there it is armed alone.)
TEST(FailureSweep, F5DestructionOfAnArmedPassAndAfterAnyHookLeavesNothing) {
  for (const Setting& setting : kSettings) {
    for (int k = 0; k < (setting.dynamic ? 1 : kParameters); ++k) {
      SCOPED_TRACE(std::string(setting.name) + ", after " + std::to_string(k) + " hooks");
      auto group = std::make_shared<PlayedGroup>();
      TestRank rank;
      for (int i = 0; i < kParameters; ++i) rank.add("p" + std::to_string(i));
      ASSERT_TRUE(rank.create({group, std::make_shared<HashStore>()}, options_of(setting)).ok());
      group->stalls = !setting.is_static;  // its first pass waits for the usage map
      auto outputs = rank.forward_of(rank.parameters);
      const std::vector<Edge> roots(outputs.begin(), outputs.begin() + k);
      if (k > 0) {
        EXPECT_TRUE(rank.backward(roots, 1).ok());  // the rest is left to a further one
        EXPECT_EQ(rank.parallel->account().doing, Account::Doing::kBetween);
      }
      const auto deadline = platform::Deadline::in(seconds(20));
      rank.parallel.reset();
      EXPECT_FALSE(deadline.passed());
      EXPECT_EQ(group->in_flight(), 0u);
      EXPECT_EQ(group.use_count(), 1);
      const int sums = group->sums();
      std::vector<Edge> own;
      for (const auto& p : rank.parameters) own.push_back({p, 0});
      EXPECT_TRUE(rank.backward(own, 1).ok());  // a hook left here would be called
      EXPECT_EQ(group->sums(), sums);
      outputs.clear();
      rank.undefine_grads();
      EXPECT_EQ(rank.devices[0].allocated_bytes(), 0u);
    }
  }
}

// Promises what nobody keeps, beside its sum.
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

// As above, where more is in flight, or held. Of sparse parameters the entries are what is held.
TEST(FailureSweep, F5DestructionAfterAnyHookWithOtherKindsOfWork) {
  for (const Kind kind : {Kind::kPendingHook, Kind::kReplicas, Kind::kSparse, Kind::kVerified}) {
    const int parts = kind == Kind::kReplicas ? 2 * kParameters : kParameters;
    for (int k = 0; k < parts; ++k) {
      SCOPED_TRACE(std::to_string(static_cast<int>(kind)) + ", after " + std::to_string(k) +
                   " hooks");
      auto group = std::make_shared<PlayedGroup>();
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
      EXPECT_TRUE(status.ok()) << status.to_string();  // the rest is left to a further one
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
      EXPECT_TRUE(train(own).ok());  // a hook left here would be called
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
