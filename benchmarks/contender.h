// Contender: one way to bring the gradients of a workload to all ranks. The floors are here, which
// sum and do nothing else; reducers are in reduced.h.
//
// A contender is a rank's half of a collective thing: all ranks call the same methods in the same
// order. A step sums in place what prepare() put there.
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

// What one step of one rank took, beside its own time. Zero where a contender has no such thing.
struct StepNotes {
  std::int64_t launch_delay_ns = 0;  // median over buckets: last gradient there -> sum started
  std::int64_t exposed_ns = 0;       // last gradient of all there -> all done
};

// How a backward that no model stands behind brings the hooks about. But for kArriving, gradients
// are there already, and none arrives.
enum class Backward : std::uint8_t {
  kHooks,     // one node calls them all, the last parameter's first
  kArriving,  // the same, and each parameter, which has no gradient, gets a tensor that becomes it
  kChain,     // a node for each parameter, the last one's first; the engine visits its accumulator
};

class Contender {
 public:
  virtual ~Contender() = default;
  virtual Status prepare(const Values& values) = 0;  // not timed
  virtual Status step() = 0;                         // timed
  virtual std::uint64_t wrong(const Values& values) const = 0;
  virtual float* first_result() = 0;  // for the positive control
  virtual StepNotes notes() const { return {}; }
};

// What a rank has to reach the others with.
struct Place {
  int rank = 0;
  int ranks = 1;
  std::string directory;  // for rendezvous: fresh, and shared by all ranks
  std::shared_ptr<Store> store;
  std::shared_ptr<ProcessGroup> group;
};

Result<Place> take_place(int rank, int ranks, const std::string& directory);

// Gloo alone: one gloo::allreduce of all elements, on connections of its own. It adds with the sums
// that our groups use, which are the faster ones.
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

// Some all-reduces of a process group, all in flight at once: what is left of a reducer without
// gradients, hooks and copies; or with copies of each bucket as a whole, to where it is summed and
// back.
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
    std::int64_t first = 0;  // element
    std::int64_t elements = 0;
    Ref<Storage> memory;   // where it is summed
    Ref<Storage> outside;  // where it comes from, and goes; null: the same
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
