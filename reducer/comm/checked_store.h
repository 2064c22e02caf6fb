// CheckedStore is what the library puts around a store that its user wrote, before it calls it on
// threads of its own, where an exception would end the process. What a call of the inner store
// throws becomes the Status of that call: kTransport, with the exception's text. Refused memory
// (std::bad_alloc) passes, because the library handles it like that of its own allocations. Without
// an inner store every call returns kInvalidArgument.
//
//   CheckedStore checked(store);
//   Result<bool> is_new = checked.set("key", "value");
//
// Threads: as the inner store. Ownership: it shares the inner store, or refers to one that outlives
// it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "reducer/comm/store.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class CheckedStore final : public Store {
 public:
  explicit CheckedStore(std::shared_ptr<Store> inner);
  explicit CheckedStore(Store& inner);
  Result<bool> set(std::string_view key, std::string_view value) override;
  Result<std::string> get(std::string_view key, platform::Deadline deadline) override;
  Result<bool> contains(std::string_view key) override;

 private:
  const std::shared_ptr<Store> inner_;
};

// What a call returns to whom has passed no store.
Status no_store();

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
