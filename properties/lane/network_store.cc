#include "properties/lane/network_store.h"

#include <chrono>

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

constexpr platform::Duration kLongestWait = std::chrono::hours(1);

}  // namespace

NetworkStore::NetworkStore(const std::string& place, std::uint32_t rank) {
  auto client = properties::hosts::open_store(place, rank);
  if (client)
    client_ = std::move(*client);
  else
    lacking_ = client.error().failure().detail;
}

std::string NetworkStore::lacking() const {
  const std::scoped_lock lock(mutex_);
  return lacking_;
}

Status NetworkStore::refusal() const { return {Code::kInvalidArgument, lacking()}; }

template <class T>
Result<T> NetworkStore::watched(Result<T> result) {
  if (result || result.error().code() == Code::kTimeout) return result;
  const std::scoped_lock lock(mutex_);
  if (lacking_.empty()) lacking_ = result.error().failure().detail;
  return result;
}

Result<bool> NetworkStore::set(std::string_view key, std::string_view value) {
  if (!client_) return failed(refusal());
  return watched(client_->set(key, value));
}

Result<std::string> NetworkStore::get(std::string_view key, platform::Deadline deadline) {
  if (!client_) return failed(refusal());
  const auto wait = std::min<platform::Duration>(deadline.remaining(), kLongestWait);
  return watched(client_->get(key, std::chrono::ceil<std::chrono::milliseconds>(wait)));
}

Result<bool> NetworkStore::contains(std::string_view key) {
  if (!client_) return failed(refusal());
  return watched(client_->contains(key));
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
