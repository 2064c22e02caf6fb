// Store is the rendezvous: a small key-value store that all ranks of a job share. Connection
// addresses, the generation of a group, and the reports of a failure (contract F2) go through it.
// Nothing on the hot path does.
//
// Threads: all calls from any thread. Every wait has a deadline (F1).
// Keys and values are bytes. A value is set once and never changes, so a reader needs no version.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "reducer/base/status.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class Store {
 public:
  virtual ~Store() = default;

  // Sets `key`. If the key is set already, the value stays and the call returns false.
  virtual Result<bool> set(std::string_view key, std::string_view value) = 0;

  // Waits for the value of `key` until the deadline; kTimeout names the key.
  virtual Result<std::string> get(std::string_view key, platform::Deadline deadline) = 0;

  // Whether `key` is set now.
  virtual Result<bool> contains(std::string_view key) = 0;
};

// HashStore is a store in the memory of one process, for ranks that are threads, and for the
// simulator.
class HashStore : public Store {
 public:
  HashStore();
  ~HashStore() override;
  Result<bool> set(std::string_view key, std::string_view value) override;
  Result<std::string> get(std::string_view key, platform::Deadline deadline) override;
  Result<bool> contains(std::string_view key) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// PrefixStore puts a prefix before the keys of another store, as in "group/3" + "/" + key. It keeps
// the inner store alive.
class PrefixStore : public Store {
 public:
  PrefixStore(std::string prefix, std::shared_ptr<Store> inner);
  Result<bool> set(std::string_view key, std::string_view value) override;
  Result<std::string> get(std::string_view key, platform::Deadline deadline) override;
  Result<bool> contains(std::string_view key) override;

 private:
  std::string prefix_;
  std::shared_ptr<Store> inner_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
