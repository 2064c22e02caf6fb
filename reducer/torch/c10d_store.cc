#include "reducer/torch/c10d_store.h"

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

namespace lockstep::torch_adapter {
namespace {

constexpr platform::Duration kFirstPoll = std::chrono::microseconds(200);
constexpr platform::Duration kLongestPoll = std::chrono::milliseconds(5);

Status refused(const char* what, std::string_view key, const std::exception& error) {
  std::string why = error.what();
  why = why.substr(0, why.find('\n'));
  return Status(Code::kTransport, std::string("torch.distributed's store could not ") + what +
                                      " the key " + std::string(key) + ": " + why);
}

}  // namespace

// Not every c10d store has a compare-and-set; all of them count. The first to count sets.
Result<bool> C10dStore::set(std::string_view key, std::string_view value) try {
  const std::string name(key);
  if (store_->add(name + "/writers", 1) != 1) return false;
  store_->set(name, std::vector<std::uint8_t>(value.begin(), value.end()));
  return true;
} catch (const std::exception& error) {
  return failed(refused("set", key, error));
}

Result<std::string> C10dStore::get(std::string_view key, platform::Deadline deadline) try {
  platform::Mutex mutex("c10d_store.poll");
  platform::CondVar nobody_notifies("c10d_store.poll");
  platform::Duration wait = kFirstPoll;
  const std::string name(key);
  while (!store_->check({name})) {
    if (deadline.passed())
      return failed(Status(Code::kTimeout,
                           "nobody set the key " + name + " in torch.distributed's store in time"));
    platform::MutexLock lock(mutex);
    nobody_notifies.wait(mutex, platform::Deadline::in(wait), [] { return false; });
    wait = std::min(2 * wait, kLongestPoll);
  }
  const std::vector<std::uint8_t> bytes = store_->get(name);
  return std::string(bytes.begin(), bytes.end());
} catch (const std::exception& error) {
  return failed(refused("get", key, error));
}

Result<bool> C10dStore::contains(std::string_view key) try {
  return store_->check({std::string(key)});
} catch (const std::exception& error) {
  return failed(refused("look for", key, error));
}

}  // namespace lockstep::torch_adapter
