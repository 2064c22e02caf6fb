// The switches that mutate.py writes into the copy of the reducer. They are those of planted bugs
// (faults/seeded/seeded.h): LOCKSTEP_SEEDED(ID) counts how often the mutant was reached, and
// LOCKSTEP_SEEDED_TRIGGERED(ID) how often it made a difference. A condition or value that has
// side effects is evaluated once, so it counts as a difference whenever it is reached.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "faults/seeded/seeded.h"

#define LOCKSTEP_MUTANT_CONDITION_PURE(id, original, mutated) \
  (LOCKSTEP_SEEDED(id) ? [&] {                                                  \
    const bool is_mutated = static_cast<bool>(mutated);                         \
    if (is_mutated != static_cast<bool>(original)) LOCKSTEP_SEEDED_TRIGGERED(id); \
    return is_mutated;                                                          \
  }() : static_cast<bool>(original))

#define LOCKSTEP_MUTANT_CONDITION(id, original, mutated)                             \
  (LOCKSTEP_SEEDED(id) ? (LOCKSTEP_SEEDED_TRIGGERED(id), static_cast<bool>(mutated)) \
                       : static_cast<bool>(original))

#define LOCKSTEP_MUTANT_VALUE(id, original, mutated) \
  LOCKSTEP_SEEDED(id) ? (LOCKSTEP_SEEDED_TRIGGERED(id), (mutated)) : (original)

// Stands before the statement.
#define LOCKSTEP_MUTANT_DROP(id)   \
  if (LOCKSTEP_SEEDED(id)) {       \
    LOCKSTEP_SEEDED_TRIGGERED(id); \
  } else

#define LOCKSTEP_MUTANT_SWALLOW(id, ...)                                               \
  do {                                                                                 \
    if (::lockstep::Status lockstep_status_ = (__VA_ARGS__); !lockstep_status_.ok()) { \
      if (!LOCKSTEP_SEEDED(id)) return lockstep_status_;                               \
      LOCKSTEP_SEEDED_TRIGGERED(id);                                                   \
    }                                                                                  \
  } while (false)

namespace lockstep::mutants {

template <std::uint64_t number, bool is_min>
struct Extreme {
  template <class T>
  T operator()(const T& a, const T& b) const {
    if (!seeded::internal::reach<number>()) return is_min ? std::min(a, b) : std::max(a, b);
    if (a != b) seeded::internal::trigger<number>();
    return is_min ? std::max(a, b) : std::min(a, b);
  }
  template <class T>
  T operator()(std::initializer_list<T> all) const {
    if (!seeded::internal::reach<number>()) return is_min ? std::min(all) : std::max(all);
    if (std::min(all) != std::max(all)) seeded::internal::trigger<number>();
    return is_min ? std::max(all) : std::min(all);
  }
};

// Counts a difference where the two differ, as far as they can be compared.
template <std::uint64_t number, class A, class B>
bool swap(const A& a, const B& b) {
  if (!seeded::internal::reach<number>()) return false;
  if constexpr (requires { a == b; }) {
    if (a == b) return true;
  }
  seeded::internal::trigger<number>();
  return true;
}

}  // namespace lockstep::mutants

// Two arguments of a call. They have no side effects, so they may be evaluated again.
#define LOCKSTEP_MUTANT_SWAP(id, a, b)                                                        \
  (LOCKSTEP_SEEDED(id) ? (b) : (a)),                                                          \
      (::lockstep::mutants::swap<::lockstep::seeded::number_of(#id)>((a), (b)) ? (a) : (b))

#define LOCKSTEP_MUTANT_MIN(id) \
  (::lockstep::mutants::Extreme<::lockstep::seeded::number_of(#id), true>{})
#define LOCKSTEP_MUTANT_MAX(id) \
  (::lockstep::mutants::Extreme<::lockstep::seeded::number_of(#id), false>{})
