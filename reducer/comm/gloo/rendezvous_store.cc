#include "reducer/comm/gloo/rendezvous_store.h"

#include <gloo/common/error.h>

#include <utility>

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

[[noreturn]] void throw_as_gloo(const Status& status) {
  throw ::gloo::IoException(status.to_string());
}

}  // namespace

RendezvousStore::RendezvousStore(std::string prefix, std::shared_ptr<lockstep::Store> inner,
                                 platform::Deadline deadline)
    : inner_(std::move(prefix), std::move(inner)), deadline_(deadline) {}

void RendezvousStore::set(const std::string& key, const std::vector<char>& data) {
  const Result<bool> is_new = inner_.set(key, {data.data(), data.size()});
  if (!is_new) throw_as_gloo(is_new.error());
  if (!*is_new)
    throw_as_gloo(Status(Code::kInvalidArgument,
                         "the key '" + key + "' is set already: use a fresh store or prefix"));
}

std::vector<char> RendezvousStore::get(const std::string& key) {
  const Result<std::string> value = inner_.get(key, deadline_);
  if (!value) throw_as_gloo(value.error());
  return {value->begin(), value->end()};
}

void RendezvousStore::wait(const std::vector<std::string>& keys) { wait_until(keys, deadline_); }

void RendezvousStore::wait(const std::vector<std::string>& keys,
                           const std::chrono::milliseconds& timeout) {
  const auto sooner = platform::Deadline::in(timeout);
  wait_until(keys, sooner.at() < deadline_.at() ? sooner : deadline_);
}

void RendezvousStore::wait_until(const std::vector<std::string>& keys,
                                 platform::Deadline deadline) {
  for (const std::string& key : keys) {
    const Result<std::string> value = inner_.get(key, deadline);
    if (!value) throw_as_gloo(value.error());
  }
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
