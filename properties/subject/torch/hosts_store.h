// HostsStore: the store of the lane hosts (hosts/store_client.h) as a store of PyTorch, for its
// process groups over Gloo. These set, get, check and wait for keys; what else a store of PyTorch
// can do throws. So do all calls that fail: the network or the controller has failed, or the time
// is over.
//
// Threads: all calls from any thread but setTimeout(), as with PyTorch's stores.
#pragma once

#include <c10d/Store.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "properties/hosts/store_client.h"

namespace lockstep::torch_subject {

class HostsStore final : public c10d::Store {
 public:
  // What the clones of a store have in common with it.
  struct Shared {
    std::shared_ptr<properties::hosts::StoreClient> client;
    std::string prefix;
  };
  explicit HostsStore(Shared shared);
  // `place`: RankJob::directory. Throws std::runtime_error where the place or the secret cannot be
  // read. All keys begin with `prefix`.
  HostsStore(const std::string& place, std::uint32_t rank, std::string prefix);

  void set(const std::string& key, const std::vector<std::uint8_t>& value) override;
  // Waits for the key for as long as getTimeout() says.
  std::vector<std::uint8_t> get(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;

  std::int64_t add(const std::string& key, std::int64_t value) override;
  bool deleteKey(const std::string& key) override;
  std::int64_t getNumKeys() override;
  // PyTorch has this one from 2.x on, and there it overrides.
  c10::intrusive_ptr<c10d::Store> clone();

 private:
  const std::shared_ptr<properties::hosts::StoreClient> client_;
  const std::string prefix_;
};

}  // namespace lockstep::torch_subject
