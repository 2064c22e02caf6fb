// Memory that is refused (F1, F2, F4, F5). This program has an operator new of its own, which
// refuses one request: the n-th of those that the library makes, for every n until a run needs
// fewer. Claims: the error is kOutOfMemory and nothing else; nothing leaks; after a reset a step is
// exact. The host device allocates through the operator, too. It does not refuse requests of the
// user's own code (a forward, a node). (The test is a program of its own, because each program can
// have only one operator new.)
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <new>
#include <optional>
#include <ostream>
#include <stdexcept>

#include "reducer/comm/mirror_peer_group.h"
#include "reducer/data_parallel.h"
#include "reducer/device/host/host_device.h"
#include "reducer/hooks/builtin_hooks.h"
#include "reducer/hooks/power_sgd_hook.h"

namespace {

std::atomic<bool> is_armed{false};
constexpr long kMany = 1'000'000;
std::atomic<long> requests_left{kMany};
std::atomic<long> alive{0};  // In blocks.

void* take(std::size_t bytes, std::size_t alignment) {
  if (is_armed.load() && requests_left.fetch_sub(1) == 0) return nullptr;
  void* memory =
      alignment <= alignof(std::max_align_t)
          ? std::malloc(bytes == 0 ? 1 : bytes)
          : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory != nullptr) alive.fetch_add(1);
  return memory;
}

void* take_or_throw(std::size_t bytes, std::size_t alignment) {
  void* memory = take(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void give(void* memory) {
  if (memory != nullptr) alive.fetch_sub(1);
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t bytes) { return take_or_throw(bytes, 1); }
void* operator new[](std::size_t bytes) { return take_or_throw(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return take_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return take(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return take(bytes, 1); }
void operator delete(void* memory) noexcept { give(memory); }
void operator delete[](void* memory) noexcept { give(memory); }
void operator delete(void* memory, std::size_t) noexcept { give(memory); }
void operator delete[](void* memory, std::size_t) noexcept { give(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { give(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { give(memory); }
void operator delete(void* memory, std::align_val_t, const std::nothrow_t&) noexcept {
  give(memory);
}

namespace lockstep {
namespace {

// While an Armed is alive, requests count.
class Armed {
 public:
  Armed() { is_armed = true; }
  ~Armed() { is_armed = false; }
  Armed(const Armed&) = delete;
  Armed& operator=(const Armed&) = delete;
};
// While a Spared is alive, they do not, because the user's own code runs.
class Spared {
 public:
  Spared() : was_(is_armed.exchange(false)) {}
  ~Spared() { is_armed = was_; }
  Spared(const Spared&) = delete;
  Spared& operator=(const Spared&) = delete;

 private:
  const bool was_;
};

class FanNode final : public Node {
 public:
  FanNode(Engine& engine, std::vector<Edge> edges) : Node(engine.next_sequence(), 1, 0) {
    edges_ = std::move(edges);
  }
  Status apply(std::span<const Tensor> in, std::span<Tensor> out, const BackwardContext&) override {
    for (Tensor& o : out) o = in[0];
    return {};
  }
};

struct Setting {
  const char* name;
  bool dynamic = false;
  bool is_static = false;
  bool views = false;
  bool hook = false;
  Schedule schedule = Schedule::kOverlapped;
  int workers = 0;
  bool state = false;     // The model has values of parameters, and buffers.
  bool replicas = false;  // There is a second replica on the other device.
  bool join = false;      // A join ends before the reset, and begins again after it.
  bool power_sgd = false;
  bool verified = false;
};

void PrintTo(const Setting& setting, std::ostream* out) { *out << setting.name; }

class OutOfMemory : public ::testing::TestWithParam<Setting> {};
class OutOfMemoryInAFailure : public OutOfMemory {};

constexpr int kParameters = 6;  // More than the number of gradients that a node stores inline.
constexpr std::int64_t kElements = 40;

// PowerSGD does not give the mean. These are its results in the run in which nothing was refused,
// by the number of synced steps since construction or a reset.
std::vector<std::vector<float>> approximations;

class ThrowingNode final : public Node {
 public:
  ThrowingNode(Engine& engine, std::vector<Edge> edges) : Node(engine.next_sequence(), 1, 0) {
    edges_ = std::move(edges);
  }
  Status apply(std::span<const Tensor>, std::span<Tensor>, const BackwardContext&) override {
    throw std::runtime_error("the user's node threw");
  }
};

// One rank of two; the other one does the same.
class Job {
 public:
  explicit Job(const Setting& setting) : setting_(setting), engine_(setting.workers) {
    for (int i = 0; i < kParameters; ++i)
      parameters_.push_back(make_ref<Parameter>(
          "parameter number " + std::to_string(i), devices_[i % (setting.workers + 1)],
          DType::kFloat32, shape(), true, engine_.next_sequence()));
    for (int i = 0; setting_.replicas && i < kParameters; ++i)
      copies_.push_back(make_ref<Parameter>("copy number " + std::to_string(i), devices_[1],
                                            DType::kFloat32, shape(), true,
                                            engine_.next_sequence()));
    gradient_ = *Tensor::empty(devices_[0], DType::kFloat32, shape());
    for (std::int64_t i = 0; i < kElements; ++i)
      reinterpret_cast<float*>(gradient_.data())[i] = static_cast<float>(i) + 1;
  }

  Status create() {
    const Spared spared;
    ReducerOptions options;
    options.find_unused_parameters = setting_.dynamic;
    options.static_graph = setting_.is_static;
    options.gradient_as_bucket_view = setting_.views;
    options.bucket_limits = {300};
    options.coalesced_bytes = 300;
    options.schedule = setting_.schedule;
    if (setting_.verified) {
      options.reduction = Reduction::kRankOrdered;
      options.verify_payload = true;
    }
    if (setting_.hook) options.hook = make_all_reduce_hook();
    if (setting_.power_sgd) options.hook = make_power_sgd_hook({1, 7});
    if (setting_.replicas) options.replicas = {{copies_, {}}};
    if (setting_.state) {
      options.buffers = {make_ref<Buffer>("running mean", gradient_),
                         make_ref<Buffer>("running variance", gradient_)};
      options.broadcast_chunk_bytes = 100;
      for (const auto& parameter : parameters_) parameter->set_value(gradient_);
    }
    options.failure_grace = std::chrono::milliseconds(0);
    std::vector<Ref<Parameter>> parameters = parameters_;
    Membership membership = fresh();
    const Armed armed;
    auto made = DataParallel::create(std::move(parameters), engine_, std::move(options),
                                     std::move(membership));
    if (!made) return made.error();
    parallel_ = std::move(*made);
    return {};
  }

  // The simulated peer runs out of inputs when this rank does (S2).
  Status begin() {
    const Armed armed;
    steps_ = 0;
    return setting_.join ? parallel_->begin_join() : Status();
  }
  Status end_join() {
    const Armed armed;
    return setting_.join ? parallel_->end_join() : Status();
  }

  // In dynamic mode the last parameter is not used, so one parameter stays without a gradient.
  Status step(bool synced) {
    std::vector<Edge> outputs;
    std::optional<DataParallel::NoSync> local;
    if (!synced) local.emplace(*parallel_);
    const auto module = [this](std::vector<Edge>& made) {
      const Spared spared;
      std::vector<Edge> edges;
      for (int i = 0; i < kParameters - (setting_.dynamic ? 1 : 0); ++i)
        edges.push_back({parameters_[static_cast<std::size_t>(i)], 0});
      for (const Ref<Parameter>& copy : copies_) edges.push_back({copy, 0});
      made.push_back({Ref<Node>(new FanNode(engine_, std::move(edges))), 0});
      return Status();
    };
    if (synced) ++steps_;
    const Armed armed;
    joins_before_backward_ = kNone;
    if (Status status = parallel_->forward(module, outputs); !status.ok()) {
      EXPECT_EQ(status.failure().rank, 0) << status.to_string();
      return status;
    }
    joins_before_backward_ = joins();
    if (outputs.empty()) return Status(Code::kInternal, "a forward gave no output, and no error");
    const std::array<Tensor, 1> gradients = {gradient_};
    return engine_.backward(outputs, gradients, false);
  }

  // Runs a step whose backward fails when its first bucket has been launched.
  Status failing_step() {
    std::vector<Edge> outputs;
    const auto module = [this](std::vector<Edge>& made) {
      std::vector<Edge> edges;
      for (int i = 1; i < kParameters; ++i)
        edges.push_back({parameters_[static_cast<std::size_t>(i)], 0});
      for (const Ref<Parameter>& copy : copies_) edges.push_back({copy, 0});
      const Edge first{parameters_[0], 0};
      edges.push_back({Ref<Node>(new ThrowingNode(engine_, std::vector<Edge>(1, first))), 0});
      made.push_back({Ref<Node>(new FanNode(engine_, std::move(edges))), 0});
      return Status();
    };
    LOCKSTEP_RETURN_IF_ERROR(parallel_->forward(module, outputs));
    joins_before_backward_ = joins();
    const std::array<Tensor, 1> gradients = {gradient_};
    const Armed armed;
    return engine_.backward(outputs, gradients, false);
  }

  Status reset() {
    const Spared spared;
    Membership membership = fresh();
    {
      const Armed armed;
      LOCKSTEP_RETURN_IF_ERROR(parallel_->reset(std::move(membership)));
    }
    return begin();
  }

  void undefine_grads() {
    for (const auto& p : parameters_) p->undefine_grad();
    for (const auto& p : copies_) p->undefine_grad();
  }
  void expect_exact() const {
    if (setting_.power_sgd) return expect_as_before();
    const float replicas = setting_.replicas ? 2 : 1;
    for (const auto& copy : copies_) EXPECT_FALSE(copy->grad().defined());
    for (int i = 0; i < kParameters; ++i) {
      const Tensor& grad = parameters_[static_cast<std::size_t>(i)]->grad();
      if (setting_.dynamic && i == kParameters - 1) {
        EXPECT_FALSE(grad.defined());
        continue;
      }
      ASSERT_TRUE(grad.defined());
      // Both ranks hold the same values, so the mean equals them.
      for (std::int64_t e = 0; e < kElements; ++e)
        ASSERT_EQ(reinterpret_cast<const float*>(grad.data())[e],
                  replicas * (static_cast<float>(e) + 1));
    }
  }
  void expect_as_before() const {
    const Spared spared;
    std::vector<float> now;
    for (const auto& parameter : parameters_) {
      ASSERT_TRUE(parameter->grad().defined());
      const auto* values = reinterpret_cast<const float*>(parameter->grad().data());
      now.insert(now.end(), values, values + kElements);
    }
    if (approximations.size() < steps_) approximations.push_back(now);
    ASSERT_GE(approximations.size(), steps_);
    ASSERT_EQ(now, approximations[steps_ - 1]);
  }
  // Peers are in the middle of what was launched, unless the pass is complete (P12); and they have
  // new buckets if they received an order (B2).
  void expect_poisoned_if_launched() const {
    const Reducer& reducer = parallel_->reducer();
    const auto& trace = reducer.trace().entries();
    const std::int64_t complete = reducer.last_pass().pass;
    const bool open = std::any_of(trace.begin(), trace.end(), [&](const TraceEntry& entry) {
      using What = TraceEntry::What;
      const bool is_of_pass = entry.what == What::kBucket || entry.what == What::kUsageMap;
      return entry.state != TraceEntry::State::kCompleted || (is_of_pass && entry.pass > complete);
    });
    const bool told_order = std::any_of(trace.begin(), trace.end(), [](const TraceEntry& entry) {
      return entry.what == TraceEntry::What::kOrder;
    });
    const bool half_rebuilt = told_order && reducer.rebuilt_order().empty();
    const bool is_announced = joins_before_backward_ != kNone && joins() > joins_before_backward_;
    EXPECT_TRUE(!(open || half_rebuilt || is_announced) || !reducer.poisoned().ok());
  }
  // A reducer that refuses work since then says whose memory was refused, and in which pass (F2).
  void expect_named() const {
    const Status& cause = parallel_->poisoned();
    if (cause.ok()) return;
    EXPECT_EQ(cause.failure().rank, 0);
    EXPECT_EQ(cause.failure().reported_by, 0);
    EXPECT_NE(cause.failure().pass, kNone);
    EXPECT_TRUE(cause.failure().definite);
  }
  bool has_parallel() const { return parallel_ != nullptr; }
  DataParallel& parallel() { return *parallel_; }

 private:
  // The number of exchanges of the join state (S2).
  std::ptrdiff_t joins() const {
    const Spared spared;
    const auto& trace = parallel_->reducer().trace().entries();
    return std::count_if(trace.begin(), trace.end(), [](const TraceEntry& entry) {
      return entry.what == TraceEntry::What::kJoin;
    });
  }
  Shape shape() const {
    return setting_.power_sgd ? Shape::row_major({8, 5}) : Shape::row_major({kElements});
  }
  static Membership fresh() {
    return {std::make_shared<MirrorPeerGroup>(), std::make_shared<HashStore>()};
  }

  const Setting setting_;
  // The destructors check that no memory of theirs is left.
  HostDevice devices_[2] = {HostDevice(0, FreshMemory::kNaN), HostDevice(1, FreshMemory::kNaN)};
  Engine engine_;
  std::vector<Ref<Parameter>> parameters_;
  std::vector<Ref<Parameter>> copies_;
  Tensor gradient_;
  std::size_t steps_ = 0;  // The synced steps since construction or a reset.
  std::ptrdiff_t joins_before_backward_ = kNone;
  std::unique_ptr<DataParallel> parallel_;
};

// Runs construction, a local and a synced step, the step that rebuilds, a reset, and one more step.
// Returns the first error, if there was one; the run then makes up for what was refused.
Status run(const Setting& setting) {
  Job job(setting);
  Status status = job.create();
  if (!status.ok()) {
    EXPECT_FALSE(job.has_parallel());
    EXPECT_TRUE(job.create().ok());
  } else {
    status = job.begin();
  }
  const auto step = [&](bool synced) {
    if (!status.ok()) return;
    if (synced) job.undefine_grads();
    status = job.step(synced);
    if (status.ok() && synced) job.expect_exact();
  };
  step(false);
  for (int i = 0; i < 3; ++i) step(true);
  if (status.ok()) status = job.end_join();
  if (status.ok()) status = job.reset();
  for (int i = 0; i < 2; ++i) step(true);
  if (status.ok()) return {};
  job.expect_poisoned_if_launched();
  job.expect_named();
  if (job.parallel().poisoned().ok()) {  // The reducer continues as if nothing had happened (P12).
    job.undefine_grads();
    const Status next = job.step(true);
    EXPECT_TRUE(next.ok()) << next.to_string();
    if (!setting.power_sgd) job.expect_exact();  // This counts the steps.
  }
  job.parallel().abort(status);
  EXPECT_FALSE(job.parallel().poisoned().ok());
  const Status reset = job.reset();
  EXPECT_TRUE(reset.ok()) << reset.to_string();
  for (int i = 0; i < 3; ++i) {
    job.undefine_grads();
    const Status again = job.step(true);
    EXPECT_TRUE(again.ok()) << again.to_string();
    job.expect_exact();
  }
  return status;
}

TEST_P(OutOfMemory, F1_6TheNthRequestRefusedIsAnErrorAndNothingIsLost) {
  requests_left = kMany;
  approximations.clear();
  EXPECT_TRUE(run(GetParam()).ok());  // The first run makes whatever is made only once.
  long n = 0;
  while (true) {
    SCOPED_TRACE("request " + std::to_string(n));
    const long before = alive.load();
    requests_left = n;
    {
      const Status status = run(GetParam());
      const bool was_refused = requests_left.load() < 0;
      requests_left = kMany;
      // A refusal of memory that is only cached for later use may succeed all the same.
      EXPECT_TRUE(status.ok() || status.code() == Code::kOutOfMemory) << status.to_string();
      if (!was_refused) {
        EXPECT_TRUE(status.ok());
        break;
      }
    }
    EXPECT_EQ(alive.load(), before);
    ASSERT_FALSE(HasFailure());
    ++n;
  }
  EXPECT_GT(n, 100);
  RecordProperty("requests", static_cast<int>(n));
}

// The reducer handles a failure although memory is refused meanwhile: the group is closed, and the
// reducer is poisoned.
TEST_P(OutOfMemoryInAFailure, P12F4TheGroupIsClosedAndTheReducerPoisoned) {
  const auto run_once = [](long n) {
    Job job(GetParam());
    EXPECT_TRUE(job.create().ok());
    EXPECT_TRUE(job.begin().ok());
    EXPECT_TRUE(job.step(true).ok());
    requests_left = n;
    const Status status = job.failing_step();
    const bool was_refused = requests_left.load() < 0;
    requests_left = kMany;
    EXPECT_FALSE(status.ok());
    EXPECT_TRUE(status.code() == Code::kUserFailure ||
                (was_refused && status.code() == Code::kOutOfMemory))
        << status.to_string();
    job.expect_poisoned_if_launched();
    job.parallel().abort(status);
    EXPECT_FALSE(job.parallel().poisoned().ok());
    EXPECT_TRUE(job.reset().ok());
    job.undefine_grads();
    EXPECT_TRUE(job.step(true).ok());
    job.expect_exact();
    return was_refused;
  };
  approximations.clear();
  EXPECT_FALSE(run_once(kMany));  // The first run makes whatever is made only once.
  long n = 0;
  for (bool was_refused = true; was_refused; ++n) {
    SCOPED_TRACE("request " + std::to_string(n));
    const long before = alive.load();
    was_refused = run_once(n);
    EXPECT_EQ(alive.load(), before);
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(n, 1) << "no request was refused";
}

const auto name_of_setting = [](const auto& each) { return each.param.name; };
constexpr Setting kPlain = {"plain"};
constexpr Setting kDynamic = {"dynamic", true};
constexpr Setting kStatic = {"static", false, true};
constexpr Setting kViews = {"views", false, false, true};
constexpr Setting kDynamicViews = {"dynamic_views", true, false, true};
constexpr Setting kHook = {"hook", false, false, false, true};
constexpr Setting kAfter = {"after_backward", false, false, false, false, Schedule::kAfterBackward};
constexpr Setting kTwoDevices = {"two_devices",         false, false, false, false,
                                 Schedule::kOverlapped, 1};

constexpr Setting kState = {"state", false, false, false, false, Schedule::kOverlapped, 0, true};
constexpr Setting kReplicas = {.name = "replicas", .workers = 1, .replicas = true};
constexpr Setting kJoin = {.name = "join", .state = true, .join = true};
constexpr Setting kPowerSgd = {.name = "power_sgd", .power_sgd = true};
constexpr Setting kVerified = {.name = "verified", .state = true, .verified = true};

INSTANTIATE_TEST_SUITE_P(All, OutOfMemory,
                         ::testing::Values(kPlain, kDynamic, kStatic, kViews, kDynamicViews, kHook,
                                           kAfter, kTwoDevices, kState, kReplicas, kJoin, kPowerSgd,
                                           kVerified),
                         name_of_setting);
// The others launch nothing before their backward ends.
INSTANTIATE_TEST_SUITE_P(All, OutOfMemoryInAFailure,
                         ::testing::Values(kPlain, kDynamic, kViews, kDynamicViews, kHook,
                                           kTwoDevices, kState, kReplicas, kJoin, kPowerSgd,
                                           kVerified),
                         name_of_setting);

}  // namespace
}  // namespace lockstep
