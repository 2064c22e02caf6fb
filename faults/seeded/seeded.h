// Planted bugs: selects which of the compiled-in bugs is on, and counts how often it acted.
//
// Every build includes this header into each file of the patched copy of reducer/ (see README.md),
// so that a patch needs no include. A patch asks LOCKSTEP_SEEDED(R01) where its wrong behaviour
// begins. The answer is true while R01 is selected, and every true answer counts as reached. The
// patch calls LOCKSTEP_SEEDED_TRIGGERED(R01) where the outcome really differs from the right one.
//
// This code is compiled once, outside of the inline namespaces: all builds of the reducer share the
// selection. Threads: select() may run only while no patched code runs; any thread may call the
// rest. A bug that is off costs one relaxed load and a comparison with a constant.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep::seeded {

// The header lines of a patch.
struct Bug {
  std::string_view id;
  std::string_view source;  // where the bug occurred in a real system
  std::string_view oracle;  // the oracles that are expected to find it, separated by commas
  std::string_view what;
};

// Returns all bugs that are compiled in, ascending by id.
std::span<const Bug> bugs();

// Switches exactly this bug on, and sets the counters to 0. The id "" switches all bugs off. For an
// id that is not compiled in, returns false and changes nothing.
bool select(std::string_view id);
std::string_view selected();  // "" if none is selected

// The counts since the last select() in this process.
std::uint64_t reached();
std::uint64_t triggered();

// Converts an id to a number (FNV-1a, never 0), so that LOCKSTEP_SEEDED compares no strings.
constexpr std::uint64_t number_of(std::string_view id) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash | 1;
}

namespace internal {

extern std::atomic<std::uint64_t> selected_number;  // 0 if none is selected
void count_reached();
void count_triggered();

// The number is a template argument, so that the compiler evaluates it in every build type.
template <std::uint64_t number>
bool is_selected() {
  return selected_number.load(std::memory_order_relaxed) == number;
}

template <std::uint64_t number>
bool reach() {
  if (!is_selected<number>()) [[likely]]
    return false;
  count_reached();
  return true;
}

template <std::uint64_t number>
void trigger() {
  if (is_selected<number>()) count_triggered();
}

}  // namespace internal
}  // namespace lockstep::seeded

#define LOCKSTEP_SEEDED(id) \
  (::lockstep::seeded::internal::reach<::lockstep::seeded::number_of(#id)>())
#define LOCKSTEP_SEEDED_TRIGGERED(id) \
  (::lockstep::seeded::internal::trigger<::lockstep::seeded::number_of(#id)>())
