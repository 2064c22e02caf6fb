#include "properties/subject/torch/hosts_store.h"

#include <stdexcept>
#include <utility>

namespace lockstep::torch_subject {
namespace {

using properties::hosts::StoreClient;

template <class T>
T value_of(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().failure().detail);
  return std::move(*result);
}

[[noreturn]] void refuse(const char* call) {
  throw std::runtime_error(std::string("the store of the lane hosts has no ") + call);
}

}  // namespace

HostsStore::HostsStore(const std::string& place, std::uint32_t rank, std::string prefix)
    : client_(value_of(properties::hosts::open_store(place, rank))), prefix_(std::move(prefix)) {}

HostsStore::HostsStore(Shared shared)
    : client_(std::move(shared.client)), prefix_(std::move(shared.prefix)) {}

void HostsStore::set(const std::string& key, const std::vector<std::uint8_t>& value) {
  (void)value_of(client_->set(prefix_ + key, std::string(value.begin(), value.end())));
}

std::vector<std::uint8_t> HostsStore::get(const std::string& key) {
  const std::string value = value_of(client_->get(prefix_ + key, getTimeout()));
  return {value.begin(), value.end()};
}

bool HostsStore::check(const std::vector<std::string>& keys) {
  for (const std::string& key : keys)
    if (!value_of(client_->contains(prefix_ + key))) return false;
  return true;
}

void HostsStore::wait(const std::vector<std::string>& keys) { wait(keys, getTimeout()); }

void HostsStore::wait(const std::vector<std::string>& keys,
                      const std::chrono::milliseconds& timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  for (const std::string& key : keys) {
    const auto left = end - std::chrono::steady_clock::now();
    (void)value_of(client_->get(prefix_ + key, std::chrono::ceil<std::chrono::milliseconds>(left)));
  }
}

std::int64_t HostsStore::add(const std::string&, std::int64_t) { refuse("add"); }
bool HostsStore::deleteKey(const std::string&) { refuse("deleteKey"); }
std::int64_t HostsStore::getNumKeys() { refuse("getNumKeys"); }

c10::intrusive_ptr<c10d::Store> HostsStore::clone() {
  return c10::make_intrusive<HostsStore>(Shared{client_, prefix_});
}

}  // namespace lockstep::torch_subject
