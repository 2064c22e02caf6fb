// OperationRing holds the operations of a process group that were started and have not ended,
// numbered from 0 on. Operation n is at index n modulo the capacity. The ring grows when it is full
// and never shrinks. An operation never moves, so a reference to it outlives growth.
//
// Threads: under the mutex of its owner.
// Failure: when memory runs out, push() returns null and changes nothing; the constructor throws
// std::bad_alloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "reducer/base/check.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

template <class Operation>
class OperationRing {
 public:
  OperationRing() : places_(made(kFirst)) {}

  Operation& at(std::uint64_t number) { return *places_[number % places_.size()]; }
  const Operation& at(std::uint64_t number) const { return *places_[number % places_.size()]; }

  // Returns the next operation, whose number is `number`; the operations from `oldest` on are in
  // use. The operation still holds what an earlier one left there.
  Operation* push(std::uint64_t oldest, std::uint64_t number) {
    LOCKSTEP_CHECK_LE(oldest, number);
    LOCKSTEP_CHECK_LE(number - oldest, places_.size());
    if (number - oldest == places_.size() && !grow(oldest)) return nullptr;
    return &at(number);
  }

 private:
  using Places = std::vector<std::unique_ptr<Operation>>;
  static constexpr std::size_t kFirst = 32;

  static Places made(std::size_t count) {
    Places places(count);
    for (auto& place : places) place = std::make_unique<Operation>();
    return places;
  }

  // Doubles the capacity. Each number keeps its index, or moves up by the old capacity.
  bool grow(std::uint64_t oldest) {
    const std::size_t before = places_.size();
    try {
      Places fresh = made(before);
      Places places(2 * before);
      for (std::uint64_t number = oldest; number < oldest + before; ++number) {
        const std::size_t at = number % (2 * before);
        places[at] = std::move(places_[number % before]);
        places[(at + before) % (2 * before)] = std::move(fresh[number % before]);
      }
      for (const auto& place : places) LOCKSTEP_CHECK(place != nullptr);
      places_ = std::move(places);
    } catch (const std::bad_alloc&) {
      return false;
    }
    return true;
  }

  Places places_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
