// Trace holds the last n collectives that this rank started for a reducer, oldest first (contract
// T1). A comparison of the traces of two ranks shows where they diverged; the traces of all ranks,
// printed side by side, explain a failure.
//
// Threads: append() and close() run under the reducer's mutex. The thread that trains calls
// entries() and to_string() outside of backward.
// Memory: all of it is reserved at construction.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reducer/bucket/layout.h"
#include "reducer/comm/process_group.h"
#include "reducer/diagnosis/flight_record.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

struct TraceEntry {
  using What = RecordedCollective::What;
  using State = RecordedCollective::State;
  std::int64_t sequence = 0;  // Counts the collectives of this reducer since construction or reset.
  std::int64_t number = kNone;  // The number on its group, which texts give; kNone: as `sequence`.
  std::int64_t pass = 0;
  What what = What::kBucket;
  Op op = Op::kAllReduceSum;
  State state = State::kInFlight;
  DType dtype = DType::kFloat32;
  int bucket = kNone;
  std::uint64_t layout_hash = 0;  // The hash of the layout that `bucket` belongs to.
  std::int64_t count = 0;         // In elements.
  platform::Duration launched{};
  platform::Duration completed{};

  std::uint64_t bytes() const { return static_cast<std::uint64_t>(count) * size_of(dtype); }
};

class Trace {
 public:
  explicit Trace(std::size_t capacity);

  void clear();                           // Called at a reset; sequence numbers start again from 0.
  std::int64_t append(TraceEntry entry);  // Sets the entry's sequence number and returns it.
  void close(std::int64_t sequence, TraceEntry::State state, platform::Duration when);

  // Returns the entries from sequence number `first` on, as far as the trace still holds them.
  std::vector<TraceEntry> entries(std::int64_t first = 0) const;
  std::int64_t next_sequence() const { return next_; }

  // Returns one line for each entry, with the names of the bucket's parameters.
  std::string to_string(const Layout& layout, const std::vector<ParameterInfo>& parameters) const;

 private:
  const std::size_t capacity_;
  // The entry with sequence number s is at index s modulo the capacity.
  std::vector<TraceEntry> ring_;
  std::int64_t next_ = 0;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
