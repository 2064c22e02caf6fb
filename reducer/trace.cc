#include "reducer/trace.h"

#include <algorithm>

#include "reducer/base/check.h"

namespace lockstep::inline LOCKSTEP_NS {

Trace::Trace(std::size_t capacity) : ring_(capacity) {
  LOCKSTEP_CHECK_GE(capacity, std::size_t{1});
}

void Trace::clear() { next_ = 0; }

std::int64_t Trace::append(TraceEntry entry) {
  entry.sequence = next_++;
  ring_[static_cast<std::size_t>(entry.sequence) % ring_.size()] = entry;
  return entry.sequence;
}

void Trace::close(std::int64_t sequence, TraceEntry::State state, platform::Duration when) {
  TraceEntry& entry = ring_[static_cast<std::size_t>(sequence) % ring_.size()];
  if (entry.sequence != sequence) return;  // already overwritten
  entry.state = state;
  entry.completed = when;
}

std::vector<TraceEntry> Trace::entries(std::int64_t first) const {
  const auto capacity = static_cast<std::int64_t>(ring_.size());
  std::vector<TraceEntry> out;
  for (std::int64_t s = std::max(first, next_ - capacity); s < next_; ++s)
    if (s >= 0) out.push_back(ring_[static_cast<std::size_t>(s) % ring_.size()]);
  return out;
}

std::string Trace::to_string(const Layout& layout,
                             const std::vector<ParameterInfo>& parameters) const {
  static constexpr const char* kStates[] = {"launched", "completed", "failed"};
  std::string out;
  for (const TraceEntry& entry : entries()) {
    out += "#" + std::to_string(entry.sequence) + " pass " + std::to_string(entry.pass) + " " +
           name_of(entry.op) + " ";
    if (entry.what == TraceEntry::What::kUsageMap) {
      out += "usage map";
    } else {
      out += "bucket " + std::to_string(entry.bucket) + " (";
      const auto& members = layout.buckets[static_cast<std::size_t>(entry.bucket)].members;
      for (std::size_t m = 0; m < members.size(); ++m)
        out += (m == 0 ? "" : " ") + parameters[members[m].parameter].name;
      out += ")";
    }
    out += " " + std::to_string(entry.count) + " x " + name_of(entry.dtype) + ", " +
           kStates[static_cast<std::size_t>(entry.state)] + "\n";
  }
  return out;
}

}  // namespace lockstep::inline LOCKSTEP_NS
