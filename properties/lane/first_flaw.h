// first_flaw(): what is wrong in the first of some drawn situations in which something is.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Draws `count` situations of `key`, one after the other, and returns the first sentence about
// what is wrong in one, behind the words `of`; empty if nothing is.
template <class Situation>
std::string first_flaw(std::uint32_t key, std::uint32_t count, const std::string& of = {}) {
  for (std::uint32_t number = 0; number < count; ++number)
    if (const std::string flaw = Situation(key, number).judge(); !flaw.empty()) return of + flaw;
  return {};
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
