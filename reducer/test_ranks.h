// Helpers for the tests of the reducer: TestRank is one rank with a small model, and two process
// groups need no network. ScriptedGroup simulates the other ranks of a group for the one rank that
// a test runs. LocalGroup connects ranks that are threads, and adds in rank order.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "reducer/data_parallel.h"
#include "reducer/device/host/host_device.h"
#include "reducer/tensor/half.h"

namespace lockstep::testing {

// Loads the element at `index`, and stores one, rounded to the dtype. A double holds the exact sum
// and product of two floats (of 16 or 32 bits), so arithmetic on these is rounded once, as the
// contract demands.
inline double element(DType dtype, const std::byte* data, std::size_t index) {
  const auto load = [&](auto value) {
    std::memcpy(&value, data + index * sizeof value, sizeof value);
    return value;
  };
  switch (dtype) {
    case DType::kFloat64:
      return load(double{});
    case DType::kFloat32:
      return load(float{});
    case DType::kFloat16:
      return half_to_float(load(std::uint16_t{}));
    case DType::kBFloat16:
      return bfloat16_to_float(load(std::uint16_t{}));
    case DType::kInt32:
      return load(std::int32_t{});
    case DType::kComplex64:  // Its parts are elements: see Tensor::as_real().
      break;
    case DType::kByte:
      return load(std::uint8_t{});
  }
  return 0;
}

inline void set_element(DType dtype, std::byte* data, std::size_t index, double value) {
  const auto store = [&](auto bits) {
    std::memcpy(data + index * sizeof bits, &bits, sizeof bits);
  };
  switch (dtype) {
    case DType::kFloat64:
      return store(value);
    case DType::kFloat32:
      return store(static_cast<float>(value));
    case DType::kFloat16:
      return store(float_to_half(static_cast<float>(value)));
    case DType::kBFloat16:
      return store(float_to_bfloat16(static_cast<float>(value)));
    case DType::kInt32:
      return store(static_cast<std::int32_t>(value));
    case DType::kComplex64:
      break;
    case DType::kByte:
      return store(static_cast<std::uint8_t>(value));
  }
}

// GCC 12.2 drops the rounding of sums that a loop carries from one iteration to the next, two at a
// time (its bug 107212), so the bits go through memory that the compiler cannot see through.
inline double rounded(DType dtype, double value) {
  std::byte bits[8];
  set_element(dtype, bits, 0, value);
  asm volatile("" : : "r"(bits) : "memory");
  return element(dtype, bits, 0);
}

// The factor of G2.
inline double factor_of(DType dtype, int ranks) {
  return dtype == DType::kFloat64 ? 1.0 / ranks
                                  : static_cast<double>(1.0f / static_cast<float>(ranks));
}

using Values = std::vector<double>;

inline Values values_of(const Tensor& tensor) {
  Values values;
  for (std::int64_t i = 0; i < tensor.elements(); ++i)
    values.push_back(element(tensor.dtype(), tensor.data(), static_cast<std::size_t>(i)));
  return values;
}

// A node made of a lambda.
class FunctionNode final : public Node {
 public:
  using Function =
      std::function<Status(std::span<const Tensor>, std::span<Tensor>, const BackwardContext&)>;
  FunctionNode(Engine& engine, std::vector<Edge> edges, Function function, int worker = 0)
      : Node(engine.next_sequence(), 1, worker), function_(std::move(function)) {
    edges_ = std::move(edges);
  }
  void mark_as_checkpoint() { runs_backward_ = true; }
  Status apply(std::span<const Tensor> incoming, std::span<Tensor> outgoing,
               const BackwardContext& context) override {
    return function_(incoming, outgoing, context);
  }

 private:
  Function function_;
};

// A collective that a group was asked to start, and the bytes that this rank contributed.
struct Started {
  Collective collective;
  std::vector<std::byte> sent;
};

inline Started note(const Collective& collective) {
  const std::size_t bytes = collective.count * size_of(collective.dtype);
  return {collective, std::vector<std::byte>(collective.data, collective.data + bytes)};
}

class ScriptedGroup final : public ProcessGroup {
 public:
  explicit ScriptedGroup(int size = 2) : size_(size) {}

  int rank() const override { return 0; }
  int size() const override { return size_; }
  bool can_reduce(DType dtype) const override { return dtype != refused_dtype; }
  bool can_verify() const override { return verifies; }
  platform::Duration timeout() const override { return limit; }

  Status start(const Collective& collective, Work& work) override {
    const bool is_sum = collective.op == Op::kAllReduceSum;
    if (is_sum && !failure.ok() && sums() >= sums_before_failure) return about(collective, failure);
    if (!is_sum && !refusal.ok()) return refusal;
    started.push_back(note(collective));
    work.begin(static_cast<std::int64_t>(started.size()) - 1);
    if (is_sum ? stalls : stalls_gathering) {
      in_flight_.push_back(&work);
      return {};
    }
    play(collective);
    const bool fails_late = is_sum && !late_failure.ok() && sums() > sums_before_failure;
    work.complete(fails_late ? about(collective, late_failure) : Status());
    return {};
  }

  void abort(const Status& cause) override {
    aborted = true;
    for (Work* work : std::exchange(in_flight_, {})) work->complete(cause);
  }

  int sums() const {
    return static_cast<int>(std::count_if(started.begin(), started.end(), [](const Started& s) {
      return s.collective.op == Op::kAllReduceSum;
    }));
  }
  std::size_t in_flight() const { return in_flight_.size(); }

  std::vector<Started> started;
  // Adds the contribution of the other ranks to a sum; by default each contributes the same as this
  // rank.
  std::function<void(const Collective&)> peers;
  // Changes what the other ranks contributed to an all-gather; by default it is the same, too.
  std::function<void(const Collective&)> peers_gathering;
  DType refused_dtype = DType::kByte;
  bool verifies = true;
  int sums_before_failure = 0;
  Status failure;                 // The error of start() for a sum.
  Status refusal;                 // The error of start() for other collectives.
  Status late_failure;            // The error of the Work.
  bool stalls = false;            // If set, sums end only when the group is aborted.
  bool stalls_gathering = false;  // If set, so do the other collectives.
  platform::Duration limit = std::chrono::seconds(5);
  bool aborted = false;

 private:
  // A group that names a collective says of which bucket it is (note_collective).
  static Status about(const Collective& collective, Status status) {
    Failure& failure = status.failure();
    if (failure.collective.empty() || failure.bucket != kNone) return status;
    failure.bucket = collective.bucket;
    failure.reducer_id = collective.reducer_id;
    return status;
  }
  void play(const Collective& collective) {
    const std::size_t bytes = collective.count * size_of(collective.dtype);
    if (collective.op == Op::kAllGather) {
      for (int r = 0; r < size_; ++r)
        std::memcpy(collective.gathered + static_cast<std::size_t>(r) * bytes, collective.data,
                    bytes);
      if (peers_gathering) peers_gathering(collective);
    } else if (collective.op == Op::kBroadcast) {
      return;  // This rank is the root.
    } else if (peers) {
      peers(collective);
    } else {
      for (std::size_t i = 0; i < collective.count; ++i)
        set_element(collective.dtype, collective.data, i,
                    size_ * element(collective.dtype, collective.data, i));
    }
  }

  const int size_;
  std::vector<Work*> in_flight_;
};

// The hub through which the ranks of one LocalGroup exchange data.
class LocalHub {
 public:
  explicit LocalHub(int size) : size_(size), next_(static_cast<std::size_t>(size), 0) {}
  int size() const { return size_; }

  Status start(int rank, const Collective& collective, Work& work) {
    platform::MutexLock lock(mutex_);
    if (dead_by_ == rank) return of_this_rank(next_[static_cast<std::size_t>(rank)], collective);
    if (dead_by_ >= 0) return lost(next_[static_cast<std::size_t>(rank)], collective);
    const std::int64_t sequence = next_[static_cast<std::size_t>(rank)]++;
    work.begin(sequence);
    Meeting& meeting = meetings_[sequence];
    meeting.there[rank] = {collective, &work};
    if (static_cast<int>(meeting.there.size()) < size_) return {};
    const Status status = join(meeting);
    for (auto& [_, part] : meeting.there) part.work->complete(status);
    meetings_.erase(sequence);
    return {};
  }

  // Works as over a network: this rank's work, and what it starts later, ends with its cause, and
  // that of the others with a lost peer.
  void abort(int rank, const Status& cause) {
    platform::MutexLock lock(mutex_);
    if (dead_by_ >= 0) return;
    dead_by_ = rank;
    cause_ = cause_of_abort(cause, rank);
    for (auto& [sequence, meeting] : meetings_)
      for (auto& [r, part] : meeting.there)
        part.work->complete(r == rank ? of_this_rank(sequence, part.collective)
                                      : lost(sequence, part.collective));
    meetings_.clear();
  }

 private:
  struct Part {
    Collective collective;
    Work* work = nullptr;
  };
  struct Meeting {
    std::map<int, Part> there;  // By rank.
  };

  Status of_this_rank(std::int64_t sequence, const Collective& collective) const {
    Status status = cause_;
    note_collective(status.failure(), collective, sequence);
    return status;
  }

  Status lost(std::int64_t sequence, const Collective& collective) const {
    Failure failure;
    failure.code = Code::kPeerLost;
    failure.suspect = dead_by_;
    failure.detail = "rank " + std::to_string(dead_by_) + " left the group";
    note_collective(failure, collective, sequence);
    return failure;
  }

  Status join(Meeting& meeting) {
    const Collective& first = meeting.there.at(0).collective;
    const std::size_t bytes = first.count * size_of(first.dtype);
    for (auto& [_, part] : meeting.there) {
      const Collective& c = part.collective;
      if (c.op != first.op || c.dtype != first.dtype || c.count != first.count ||
          c.bucket != first.bucket || c.pass != first.pass || c.reducer_id != first.reducer_id)
        return Status(Code::kMismatch, "ranks entered different collectives");
    }
    if (first.op == Op::kAllGather) {
      for (auto& [_, to] : meeting.there)
        for (auto& [r, from] : meeting.there)
          std::memcpy(to.collective.gathered + static_cast<std::size_t>(r) * bytes,
                      from.collective.data, bytes);
      return {};
    }
    if (first.op == Op::kBroadcast) {
      const Collective& root = meeting.there.at(first.root).collective;
      for (auto& [r, part] : meeting.there)
        if (r != first.root) std::memcpy(part.collective.data, root.data, bytes);
      return {};
    }
    for (std::size_t i = 0; i < first.count; ++i) {
      double sum = element(first.dtype, first.data, i);
      for (int r = 1; r < size_; ++r)
        sum = rounded(first.dtype, sum + element(first.dtype, meeting.there[r].collective.data, i));
      for (auto& [_, part] : meeting.there) set_element(first.dtype, part.collective.data, i, sum);
    }
    return {};
  }

  const int size_;
  platform::Mutex mutex_{"test.hub"};
  std::vector<std::int64_t> next_;
  std::map<std::int64_t, Meeting> meetings_;  // By sequence number.
  int dead_by_ = -1;
  Status cause_;  // Of that rank.
};

class LocalGroup final : public ProcessGroup {
 public:
  LocalGroup(std::shared_ptr<LocalHub> hub, int rank, platform::Duration timeout)
      : hub_(std::move(hub)), rank_(rank), timeout_(timeout) {}
  ~LocalGroup() override { abort(Status(Code::kAborted, "the group is gone")); }
  LocalGroup(const LocalGroup&) = delete;
  LocalGroup& operator=(const LocalGroup&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return hub_->size(); }
  bool can_reduce(DType dtype) const override { return dtype != DType::kByte; }
  // Nothing changes on the way, since the data stays in memory.
  bool can_verify() const override { return true; }
  platform::Duration timeout() const override { return timeout_; }
  Status start(const Collective& collective, Work& work) override {
    started.push_back(note(collective));
    return hub_->start(rank_, collective, work);
  }
  void abort(const Status& cause) override { hub_->abort(rank_, cause); }

  std::vector<Started> started;

 private:
  std::shared_ptr<LocalHub> hub_;
  const int rank_;
  const platform::Duration timeout_;
};

// Returns the memberships of all ranks of a fresh group, in rank order.
inline std::vector<Membership> local_memberships(
    int size, platform::Duration timeout = std::chrono::seconds(20)) {
  auto hub = std::make_shared<LocalHub>(size);
  auto store = std::make_shared<HashStore>();
  std::vector<Membership> memberships;
  for (int r = 0; r < size; ++r)
    memberships.push_back({std::make_shared<LocalGroup>(hub, r, timeout), store});
  return memberships;
}

inline void on_ranks(int size, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

struct ParameterSpec {
  DType dtype = DType::kFloat32;
  Shape shape = Shape::row_major({2});
  bool requires_grad = true;
  int device = 0;
  Parameter::Gradients gradients = Parameter::Gradients::kDense;
};

// Options with a bucket for each parameter (unless `limits` says otherwise), without a rebuild, and
// with a short grace period for failures.
inline ReducerOptions quick_options(bool dynamic, std::vector<std::uint64_t> limits = {1}) {
  ReducerOptions options;
  options.find_unused_parameters = dynamic;
  options.bucket_limits = std::move(limits);
  options.rebuild_buckets = false;
  options.failure_grace = std::chrono::milliseconds(50);
  return options;
}

// One rank: devices, engine, parameters and a DataParallel. Edges of its graphs must not outlive
// it.
class TestRank {
 public:
  explicit TestRank(int workers = 0, std::uint64_t tie_seed = 0) : engine(workers, tie_seed) {}

  Ref<Parameter> add(const std::string& name, const ParameterSpec& spec = {}) {
    parameters.push_back(make_ref<Parameter>(name, devices[spec.device], spec.dtype, spec.shape,
                                             spec.requires_grad, engine.next_sequence(),
                                             spec.gradients));
    return parameters.back();
  }

  Status create(Membership membership, ReducerOptions options) {
    auto made = DataParallel::create(parameters, engine, std::move(options), std::move(membership));
    if (!made) return made.error();
    parallel = std::move(*made);
    return {};
  }

  Ref<Node> node(std::vector<Edge> edges, FunctionNode::Function function, int worker = 0) {
    return Ref<Node>(new FunctionNode(engine, std::move(edges), std::move(function), worker));
  }
  // Makes a node that passes its gradient on to all of `edges`.
  Ref<Node> fan(std::vector<Edge> edges) {
    return node(std::move(edges), [](auto in, auto out, const auto&) {
      for (Tensor& o : out) o = in[0];
      return Status();
    });
  }
  // Makes a node that ends the graph: below it no gradient is defined.
  Ref<Node> stop(std::vector<Edge> edges = {}) {
    return node(std::move(edges), [](auto, auto, const auto&) { return Status(); });
  }
  Ref<Node> thrower(std::vector<Edge> edges = {}) {
    return node(std::move(edges), [](auto, auto, const auto&) -> Status {
      throw std::runtime_error("the user's node threw");
    });
  }

  // Runs a forward whose outputs are `edges`; its status is in forward_status.
  std::vector<Edge> forward(const std::vector<Edge>& edges) {
    std::vector<Edge> outputs;
    forward_status = parallel->forward(
        [&](std::vector<Edge>& made) {
          made = edges;
          return Status();
        },
        outputs);
    return outputs;
  }
  // Runs a forward whose outputs are the parameters themselves.
  std::vector<Edge> forward_of(const std::vector<Ref<Parameter>>& outputs) {
    std::vector<Edge> edges;
    for (const auto& output : outputs) edges.push_back({output, 0});
    return forward(edges);
  }

  Tensor tensor(const Values& values, DType dtype = DType::kFloat32, int device = 0) {
    Tensor made = *Tensor::empty(devices[device], dtype,
                                 Shape::row_major({static_cast<std::int64_t>(values.size())}));
    for (std::size_t i = 0; i < values.size(); ++i) set_element(dtype, made.data(), i, values[i]);
    return made;
  }

  // Runs a backward in which every root gets a gradient of the same values.
  Status backward(const std::vector<Edge>& roots, const Values& values, bool retain = false) {
    std::vector<Tensor> gradients;
    for (std::size_t i = 0; i < roots.size(); ++i) gradients.push_back(tensor(values));
    return engine.backward(roots, gradients, retain);
  }
  Status backward(const std::vector<Edge>& roots, double value, bool retain = false) {
    return backward(roots, Values{value, value + 1}, retain);
  }

  void undefine_grads() {
    for (const auto& parameter : parameters) parameter->undefine_grad();
  }

  HostDevice devices[2] = {HostDevice(0, FreshMemory::kNaN), HostDevice(1, FreshMemory::kNaN)};
  Engine engine;
  std::vector<Ref<Parameter>> parameters;
  std::unique_ptr<DataParallel> parallel;
  Status forward_status;
};

// The fixture of most tests: one rank with parameters p and q of two elements each, in a
// ScriptedGroup.
class ReducerTest : public ::testing::Test {
 protected:
  explicit ReducerTest(int workers = 0) : rank_(workers) {}
  void create(bool dynamic, std::vector<std::uint64_t> limits = {1}) {
    const Status status = rank_.create(membership(), quick_options(dynamic, std::move(limits)));
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  Membership membership() {
    group_ = std::make_shared<ScriptedGroup>(size_);
    return {group_, std::make_shared<HashStore>()};
  }
  DataParallel& parallel() { return *rank_.parallel; }
  static double first(const Ref<Parameter>& parameter) { return values_of(parameter->grad())[0]; }

  int size_ = 2;
  TestRank rank_;
  Ref<Parameter> p_ = rank_.add("p");
  Ref<Parameter> q_ = rank_.add("q");
  std::shared_ptr<ScriptedGroup> group_;
};

// The buckets of the sums that were started, in order.
template <class Group>
std::vector<int> buckets_of(const Group& group) {
  std::vector<int> buckets;
  for (const Started& s : group.started)
    if (s.collective.op == Op::kAllReduceSum && s.collective.bucket != kNone)
      buckets.push_back(s.collective.bucket);
  return buckets;
}

}  // namespace lockstep::testing
