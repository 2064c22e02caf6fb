// Contender: one way to all-reduce the gradients of a workload. This file has the lower bounds,
// which only sum and do nothing else; reduced.h has the reducers.
//
// Each rank owns one contender. All ranks call the same methods in the same order. step() sums in
// place the values that prepare() wrote.
#pragma once

#include <gloo/context.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/workload.h"
#include "reducer/comm/process_group.h"
#include "reducer/comm/store.h"
#include "reducer/device/host/host_device.h"

namespace lockstep::benchmarks {

// What one step of one rank measured beside its own time. A field that a contender cannot measure
// is zero.
struct StepNotes {
  // The median over all buckets of the time from the bucket's last gradient to the start of its
  // all-reduce.
  std::int64_t launch_delay_ns = 0;
  // The time from the last gradient of the pass until the step is done.
  std::int64_t exposed_ns = 0;
};

// How the hooks are called by a backward that has no model behind it. Except with kArriving, the
// gradients exist before the step, and none arrives during it.
enum class Backward : std::uint8_t {
  kHooks,  // one node calls all hooks, beginning with the last parameter's
  // As kHooks; in addition, each parameter begins without a gradient, and gets a tensor that
  // becomes its gradient.
  kArriving,
  // Each parameter has a node, beginning with the last parameter; the engine visits its
  // accumulator.
  kChain,
};

class Contender {
 public:
  virtual ~Contender() = default;
  virtual Status prepare(const Values& values) = 0;  // not timed
  virtual Status step() = 0;                         // timed
  virtual std::uint64_t wrong(const Values& values) const = 0;
  virtual float* first_result() = 0;  // the positive control changes it
  virtual StepNotes notes() const { return {}; }
};

// What a rank needs in order to reach the other ranks.
struct Place {
  int rank = 0;
  int ranks = 1;
  // The directory is for the rendezvous. It is fresh, and all ranks share it.
  std::string directory;
  std::shared_ptr<Store> store;
  std::shared_ptr<ProcessGroup> group;
};

Result<Place> take_place(int rank, int ranks, const std::string& directory);
// The same place with another group, over TCP, although the ranks share a host.
Result<Place> over_tcp(const Place& place);

// One gloo::allreduce of all elements, on connections of its own, without a reducer. It adds with
// the sum functions of our process groups, which are faster than Gloo's.
class FlatSum final : public Contender {
 public:
  FlatSum(const Place& place, std::int64_t elements);  // throws what Gloo throws
  ~FlatSum() override;
  Status prepare(const Values& values) override;
  Status step() override;
  std::uint64_t wrong(const Values& values) const override;
  float* first_result() override { return reinterpret_cast<float*>(memory_->data()); }

 private:
  const int rank_;
  const std::int64_t elements_;
  HostDevice device_;
  Ref<Storage> memory_;
  std::shared_ptr<::gloo::Context> context_;
};

// MemoryPass is a lower bound for a sum of elements in memory: each rank reads two arrays of the
// workload's size and writes one, without any other rank.
class MemoryPass final : public Contender {
 public:
  explicit MemoryPass(std::int64_t elements);
  Status prepare(const Values& values) override;
  Status step() override;
  std::uint64_t wrong(const Values& values) const override;
  float* first_result() override { return reinterpret_cast<float*>(sum_->data()); }

 private:
  const std::int64_t elements_;
  HostDevice device_;
  Ref<Storage> one_;
  Ref<Storage> other_;
  Ref<Storage> sum_;
};

// The all-reduces of a process group, all in flight at once. This is what remains of a reducer
// without gradients, hooks and copies. With Copies::kInAndOut each whole bucket is also copied to
// the memory in which it is summed, and back.
class GroupSums final : public Contender {
 public:
  enum class Copies : std::uint8_t { kNone, kInAndOut };
  GroupSums(const Place& place, const std::vector<std::int64_t>& elements, Reduction reduction,
            Copies copies = Copies::kNone, bool verify = false);
  Status prepare(const Values& values) override;
  Status step() override;
  std::uint64_t wrong(const Values& values) const override;
  float* first_result() override { return reinterpret_cast<float*>(buckets_[0].home().data()); }

 private:
  struct Bucket {
    std::int64_t first = 0;  // index of its first element
    std::int64_t elements = 0;
    Ref<Storage> memory;  // the all-reduce runs in this memory
    // The values come from this memory and return to it. Null means that they live in `memory`.
    Ref<Storage> outside;
    Storage& home() const { return outside ? *outside : *memory; }
    std::unique_ptr<Work> work;
  };
  const Place place_;
  const Reduction reduction_;
  const bool verify_;
  HostDevice device_;
  std::vector<Bucket> buckets_;
};

}  // namespace lockstep::benchmarks
