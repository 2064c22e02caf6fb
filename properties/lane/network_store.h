// NetworkStore: the store of a controller on another machine (hosts/store_client.h), as the store
// of a reducer.
//
// Threads: all calls from any thread. Failure: as of StoreClient. What the network or the
// controller refuses is not the business of the reducer under test: lacking() says it.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "properties/hosts/store_client.h"
#include "reducer/comm/store.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class NetworkStore final : public Store {
 public:
  // `place`: tcp://HOST:PORT/GENERATION. The secret is in the file that the environment variable
  // LOCKSTEP_SECRET_FILE names.
  NetworkStore(const std::string& place, std::uint32_t rank);

  Result<bool> set(std::string_view key, std::string_view value) override;
  Result<std::string> get(std::string_view key, platform::Deadline deadline) override;
  Result<bool> contains(std::string_view key) override;

  std::string lacking() const;  // why the store cannot be used; empty if it can

 private:
  template <class T>
  Result<T> watched(Result<T> result);
  Status refusal() const;

  std::unique_ptr<properties::hosts::StoreClient> client_;  // null: lacking() says why
  mutable std::mutex mutex_;
  std::string lacking_;  // guarded by mutex_
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
