// StoreClient: a rank's end of the controller's store (controller.h), for one generation.
//
// A store that has answered before, and is not there any more, is given up after half a second.
//
// Threads: all calls from any thread; each call that runs has a connection of its own, which is
// used again. Failure: kTimeout at the deadline; kInvalidArgument if the controller refuses (wrong
// secret, an old generation, a value that is too large); kPeerLost and kTransport if the network
// fails.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "properties/hosts/handshake.h"
#include "properties/hosts/line.h"
#include "properties/hosts/secret.h"

namespace lockstep::properties::hosts {

class StoreClient {
 public:
  StoreClient(Address address, Secret secret, std::uint32_t rank, std::uint64_t generation)
      : address_(std::move(address)),
        secret_(std::move(secret)),
        greeting_{Role::kStore, rank, generation} {}

  // As of Store (reducer/comm/store.h). `wait`: how long to wait for the key.
  Result<bool> set(std::string_view key, std::string_view value);
  Result<std::string> get(std::string_view key, std::chrono::milliseconds wait);
  Result<bool> contains(std::string_view key);

 private:
  struct Reply {
    char outcome = 0;
    std::string text;
  };
  Result<Reply> ask(char operation, std::chrono::milliseconds wait, std::string_view key,
                    std::string_view value);
  Result<Reply> ask_over(const Line& line, const std::string& request, Clock::time_point deadline);
  Result<Line> idle_line(Clock::time_point deadline);

  const Address address_;
  const Secret secret_;
  const Greeting greeting_;
  std::atomic<bool> has_connected_{false};
  std::mutex mutex_;
  std::vector<Line> idle_;  // guarded by mutex_
};

// The client of the store at `place`, tcp://HOST:PORT/GENERATION (RankJob::directory). The secret
// is in the file that LOCKSTEP_SECRET_FILE names. Connects later, with the first call.
Result<std::unique_ptr<StoreClient>> open_store(const std::string& place, std::uint32_t rank);

// Connects and greets; a controller that is too busy to answer is tried again until the deadline.
Result<Line> connect_as(const Address& address, const Secret& secret, const Greeting& greeting,
                        Clock::time_point deadline);

}  // namespace lockstep::properties::hosts
