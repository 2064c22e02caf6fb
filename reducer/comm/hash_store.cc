#include <map>
#include <string>
#include <utility>

#include "reducer/comm/store.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

struct HashStore::State {
  platform::Mutex mutex{"hash_store"};
  platform::CondVar changed{"hash_store.changed"};
  // Guarded by mutex; entries never change.
  std::map<std::string, std::string, std::less<>> values;
};

HashStore::HashStore() : state_(std::make_unique<State>()) {}
HashStore::~HashStore() = default;

Result<bool> HashStore::set(std::string_view key, std::string_view value) {
  platform::MutexLock lock(state_->mutex);
  const bool is_new = state_->values.emplace(std::string(key), std::string(value)).second;
  if (is_new) state_->changed.notify_all();
  return is_new;
}

Result<std::string> HashStore::get(std::string_view key, platform::Deadline deadline) {
  platform::MutexLock lock(state_->mutex);
  auto found = state_->values.end();
  const auto is_set = [&] {
    found = state_->values.find(key);
    return found != state_->values.end();
  };
  if (!state_->changed.wait(state_->mutex, deadline, is_set))
    return failed(Status(Code::kTimeout,
                         "nobody set the key '" + std::string(key) + "' before the deadline"));
  return found->second;
}

Result<bool> HashStore::contains(std::string_view key) {
  platform::MutexLock lock(state_->mutex);
  return state_->values.find(key) != state_->values.end();
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
