#include <utility>

#include "reducer/comm/checked_store.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// A store "a" over a store "b", and one prefix "b/a", give the same key on purpose: prefixes nest
// like folders. Without an inner store every call is refused.
PrefixStore::PrefixStore(std::string prefix, std::shared_ptr<Store> inner)
    : prefix_(std::move(prefix) + "/"), inner_(std::move(inner)) {}

Result<bool> PrefixStore::set(std::string_view key, std::string_view value) {
  if (inner_ == nullptr) return failed(no_store());
  return inner_->set(prefix_ + std::string(key), value);
}

Result<std::string> PrefixStore::get(std::string_view key, platform::Deadline deadline) {
  if (inner_ == nullptr) return failed(no_store());
  return inner_->get(prefix_ + std::string(key), deadline);
}

Result<bool> PrefixStore::contains(std::string_view key) {
  if (inner_ == nullptr) return failed(no_store());
  return inner_->contains(prefix_ + std::string(key));
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
