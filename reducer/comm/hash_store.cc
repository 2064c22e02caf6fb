#include <map>
#include <string>
#include <utility>

#include "reducer/base/check.h"
#include "reducer/comm/store.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

struct HashStore::State {
  platform::Mutex mutex{"hash_store"};
  platform::CondVar changed{"hash_store.changed"};
  // Entries never change.
  std::map<std::string, std::string, std::less<>> values LOCKSTEP_GUARDED_BY(mutex);
};

HashStore::HashStore() : state_(std::make_unique<State>()) {}
HashStore::~HashStore() = default;

Result<bool> HashStore::set(std::string_view key, std::string_view value) {
  State& state = *state_;
  platform::MutexLock lock(state.mutex);
  const bool is_new = state.values.emplace(std::string(key), std::string(value)).second;
  if (is_new) state.changed.notify_all();
  return is_new;
}

Result<std::string> HashStore::get(std::string_view key, platform::Deadline deadline) {
  State& state = *state_;
  platform::MutexLock lock(state.mutex);
  auto found = state.values.end();
  const auto is_set = [&]() LOCKSTEP_REQUIRES(state.mutex) {
    found = state.values.find(key);
    return found != state.values.end();
  };
  if (!state.changed.wait(state.mutex, deadline, is_set))
    return failed(Status(Code::kTimeout,
                         "nobody set the key '" + std::string(key) + "' before the deadline"));
  LOCKSTEP_CHECK(found != state.values.end());
  return found->second;
}

Result<bool> HashStore::contains(std::string_view key) {
  State& state = *state_;
  platform::MutexLock lock(state.mutex);
  return state.values.find(key) != state.values.end();
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
