// Trace: the last n collectives that this rank started for a reducer, oldest first (contract T1).
// Compared between ranks it shows where they parted; printed side by side it explains a failure.
//
// Threads: append() and close() under the reducer's mutex; entries() and to_string() by the thread
// that trains, outside of backward. Memory: reserved at construction.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reducer/bucket/layout.h"
#include "reducer/comm/process_group.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

struct TraceEntry {
  // kState: values of parameters, or buffers (S3). kJoin: who trains still (S2).
  enum class What : std::uint8_t { kBucket, kUsageMap, kRebuild, kState, kJoin };
  enum class State : std::uint8_t { kLaunched, kCompleted, kFailed };
  std::int64_t sequence = 0;  // counts this reducer's collectives since construction or reset
  std::int64_t pass = 0;
  What what = What::kBucket;
  Op op = Op::kAllReduceSum;
  State state = State::kLaunched;
  DType dtype = DType::kFloat32;
  int bucket = kNone;
  std::uint64_t layout_hash = 0;  // of the layout that `bucket` belongs to
  std::int64_t count = 0;         // elements
  platform::Duration launched{};
  platform::Duration completed{};

  std::uint64_t bytes() const { return static_cast<std::uint64_t>(count) * size_of(dtype); }
};

class Trace {
 public:
  explicit Trace(std::size_t capacity);

  void clear();                           // at a reset: sequence numbers begin again
  std::int64_t append(TraceEntry entry);  // fills in the sequence number and returns it
  void close(std::int64_t sequence, TraceEntry::State state, platform::Duration when);

  // Entries from sequence number `first` on, as far as they are still kept.
  std::vector<TraceEntry> entries(std::int64_t first = 0) const;
  std::int64_t next_sequence() const { return next_; }

  // One line per entry, with the names of the bucket's parameters.
  std::string to_string(const Layout& layout, const std::vector<ParameterInfo>& parameters) const;

 private:
  const std::size_t capacity_;
  std::vector<TraceEntry> ring_;  // the entry of sequence number s is at s modulo the capacity
  std::int64_t next_ = 0;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
