#include <utility>

#include "reducer/base/check.h"
#include "reducer/comm/store.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// A store "a" over a store "b", and one prefix "b/a", give the same key on purpose: prefixes nest
// like folders.
PrefixStore::PrefixStore(std::string prefix, std::shared_ptr<Store> inner)
    : prefix_(std::move(prefix) + "/"), inner_(std::move(inner)) {
  LOCKSTEP_CHECK(inner_ != nullptr);
}

Result<bool> PrefixStore::set(std::string_view key, std::string_view value) {
  return inner_->set(prefix_ + std::string(key), value);
}

Result<std::string> PrefixStore::get(std::string_view key, platform::Deadline deadline) {
  return inner_->get(prefix_ + std::string(key), deadline);
}

Result<bool> PrefixStore::contains(std::string_view key) {
  return inner_->contains(prefix_ + std::string(key));
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
