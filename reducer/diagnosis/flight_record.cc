#include "reducer/diagnosis/flight_record.h"

#include <algorithm>
#include <array>

#include "reducer/base/check.h"

namespace lockstep {

void Names::add(const std::string& name) {
  if (first.size() < kKept) first.push_back(name);
  ++count;
  LOCKSTEP_CHECK_LE(first.size(), count);
}

std::string Names::to_string() const {
  std::string out;
  for (std::size_t i = 0; i < first.size(); ++i) out += (i == 0 ? "" : " ") + first[i];
  if (count > first.size()) out += " and " + std::to_string(count - first.size()) + " more";
  return out;
}

bool RecordedCollective::same_as(const RecordedCollective& other) const {
  const bool same_kind = pass == other.pass && what == other.what && op == other.op;
  const bool same_data = dtype == other.dtype && count == other.count && bucket == other.bucket;
  return same_kind && same_data && layout_hash == other.layout_hash;
}

std::string RecordedCollective::name() const {
  if (what != What::kBucket) return name_of(what);
  return bucket == kNone ? "values" : "bucket " + std::to_string(bucket);
}

std::string RecordedCollective::to_string() const {
  std::string out = "pass " + std::to_string(pass) + ", " + op + " of ";
  out += (what == What::kBucket ? "" : "the ") + name();
  if (!parameters.empty()) out += " (" + parameters.to_string() + ")";
  return out + ", " + std::to_string(count) + " " + dtype;
}

const RecordedCollective* FlightRecord::find(std::int64_t sequence) const {
  if (collectives.empty() || sequence < collectives.front().sequence) return nullptr;
  const auto at = static_cast<std::size_t>(sequence - collectives.front().sequence);
  return at < collectives.size() ? &collectives[at] : nullptr;
}

const char* name_of(RecordedCollective::What what) {
  static constexpr std::array kNames = {"bucket", "usage map", "order of buckets",
                                        "values and buffers", "ranks that train"};
  static_assert(kNames.size() == static_cast<std::size_t>(RecordedCollective::What::kJoin) + 1);
  return kNames[static_cast<std::size_t>(what)];
}

const char* name_of(RecordedCollective::State state) {
  static constexpr std::array kNames = {"in flight", "completed", "failed"};
  static_assert(kNames.size() == static_cast<std::size_t>(RecordedCollective::State::kFailed) + 1);
  return kNames[static_cast<std::size_t>(state)];
}

const char* name_of(FlightRecord::Doing doing) {
  static constexpr std::array kNames = {"no pass is open", "no backward has begun",
                                        "in its backward", "between two backwards",
                                        "waiting for sums"};
  static_assert(kNames.size() == static_cast<std::size_t>(FlightRecord::Doing::kFinishing) + 1);
  return kNames[static_cast<std::size_t>(doing)];
}

}  // namespace lockstep
