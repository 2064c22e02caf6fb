// RendezvousStore adapts one of our Stores to Gloo's store interface, so that plain Gloo contexts
// can connect through it (benchmarks and tests that compare with plain Gloo). Our own groups
// connect without it (mesh.h).
//
// Every wait ends at the deadline given here, or at Gloo's limit if that is sooner: Gloo's own
// stores wait 30 s in get(), whatever limit the context has.
//
// Threads: as the inner store. Keys get a prefix.
// Failure: ::gloo::IoException with our Status as text, since Gloo's interface has no other way.
#pragma once

#include <gloo/rendezvous/store.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "reducer/comm/store.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class RendezvousStore final : public ::gloo::rendezvous::Store {
 public:
  RendezvousStore(std::string prefix, std::shared_ptr<lockstep::Store> inner,
                  platform::Deadline deadline);

  void set(const std::string& key, const std::vector<char>& data) override;
  std::vector<char> get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;

 private:
  void wait_until(const std::vector<std::string>& keys, platform::Deadline deadline);

  lockstep::PrefixStore inner_;
  platform::Deadline deadline_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
