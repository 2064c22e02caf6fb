#include "reducer/comm/checked_store.h"

#include <exception>
#include <new>
#include <utility>

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

Status thrown(const char* what) {
  return {Code::kTransport, std::string("the store threw an exception: ") + what};
}

// Runs a call of the inner store, which may be missing.
template <class Call>
auto checked(Store* inner, const Call& call) -> decltype(call(*inner)) {
  if (inner == nullptr)
    return failed(
        Status(Code::kInvalidArgument, "the store is null: pass the store that all ranks share"));
  try {
    return call(*inner);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    return failed(thrown(error.what()));
  } catch (...) {
    return failed(thrown("it is no std::exception"));
  }
}

}  // namespace

Status no_store() {
  return {Code::kInvalidArgument, "the store is null: pass the store that all ranks share"};
}

CheckedStore::CheckedStore(std::shared_ptr<Store> inner) : inner_(std::move(inner)) {}

// The pointer owns nothing.
CheckedStore::CheckedStore(Store& inner) : inner_(std::shared_ptr<Store>(), &inner) {}

Result<bool> CheckedStore::set(std::string_view key, std::string_view value) {
  return checked(inner_.get(), [&](Store& inner) { return inner.set(key, value); });
}

Result<std::string> CheckedStore::get(std::string_view key, platform::Deadline deadline) {
  return checked(inner_.get(), [&](Store& inner) { return inner.get(key, deadline); });
}

Result<bool> CheckedStore::contains(std::string_view key) {
  return checked(inner_.get(), [&](Store& inner) { return inner.contains(key); });
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
