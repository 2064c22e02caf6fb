// C10dStore is a Store on a store of torch.distributed: the one by which init_process_group() has
// brought the ranks together.
//
// get() looks again and again, as a c10d store serves one call at a time: a call that waits there
// would keep out the report of a failure.
//
// Threads: all calls from any thread, without Python's global lock.
// Failure: kTransport with the text of the c10d store, as when the process that serves it has
// ended; kTimeout of get() names the key.
#pragma once

#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "reducer/comm/store.h"

namespace lockstep::torch_adapter {

class C10dStore final : public Store {
 public:
  explicit C10dStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}
  Result<bool> set(std::string_view key, std::string_view value) override;
  Result<std::string> get(std::string_view key, platform::Deadline deadline) override;
  Result<bool> contains(std::string_view key) override;

 private:
  const c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace lockstep::torch_adapter
