#include "reducer/trace.h"

#include <algorithm>

#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

Trace::Trace(std::size_t capacity) : capacity_(capacity) {
  LOCKSTEP_CHECK_GE(capacity, std::size_t{1});
  // Entries are not constructed here: a short run never touches most of the memory.
  ring_.reserve(capacity);
}

void Trace::clear() {
  ring_.clear();
  next_ = 0;
}

std::int64_t Trace::append(TraceEntry entry) {
  entry.sequence = next_++;
  if (entry.number == kNone) entry.number = entry.sequence;
  if (ring_.size() < capacity_)
    ring_.push_back(entry);
  else
    ring_[static_cast<std::size_t>(entry.sequence) % capacity_] = entry;
  LOCKSTEP_CHECK_EQ(ring_.size(), std::min(static_cast<std::size_t>(next_), capacity_));
  return entry.sequence;
}

void Trace::close(std::int64_t sequence, TraceEntry::State state, platform::Duration when) {
  LOCKSTEP_CHECK_GE(sequence, 0);
  LOCKSTEP_CHECK(state != TraceEntry::State::kInFlight);
  const std::size_t at = static_cast<std::size_t>(sequence) % capacity_;
  if (at >= ring_.size()) return;  // The trace was cleared.
  TraceEntry& entry = ring_[at];
  if (entry.sequence != sequence) return;  // The entry was overwritten.
  entry.state = state;
  entry.completed = when;
}

std::vector<TraceEntry> Trace::entries(std::int64_t first) const {
  const auto kept = static_cast<std::int64_t>(ring_.size());
  const std::int64_t begin = std::max(first, next_ - kept);
  std::vector<TraceEntry> out;
  for (std::int64_t s = begin; s < next_; ++s) {
    out.push_back(ring_[static_cast<std::size_t>(s) % capacity_]);
    LOCKSTEP_CHECK_EQ(out.back().sequence, s);
  }
  return out;
}

std::string Trace::to_string(const Layout& layout,
                             const std::vector<ParameterInfo>& parameters) const {
  std::string out;
  for (const TraceEntry& entry : entries()) {
    out += "#" + std::to_string(entry.number) + " pass " + std::to_string(entry.pass) + " " +
           name_of(entry.op) + " ";
    if (entry.what != TraceEntry::What::kBucket) {
      out += lockstep::name_of(entry.what);
    } else if (entry.layout_hash != layout.hash) {
      out += "bucket " + std::to_string(entry.bucket) + " of an earlier layout";
    } else {
      LOCKSTEP_CHECK_LT(static_cast<std::size_t>(entry.bucket), layout.buckets.size());
      out += "bucket " + std::to_string(entry.bucket) + " (";
      const auto& members = layout.buckets[static_cast<std::size_t>(entry.bucket)].members;
      for (std::size_t m = 0; m < members.size(); ++m)
        out += (m == 0 ? "" : " ") + parameters[members[m].parameter].name;
      out += ")";
    }
    out += " " + std::to_string(entry.count) + " x " + name_of(entry.dtype) + ", " +
           lockstep::name_of(entry.state) + "\n";
  }
  return out;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
