// Planted bugs: which of the compiled-in ones is switched on, and how often it came to act.
//
// Every build includes this header into each file of the patched copy of reducer/ (see README.md),
// so that a patch needs no include. A patch asks LOCKSTEP_SEEDED(R01) where its wrong behaviour
// begins: true while R01 is selected; every true answer counts as reached. It calls
// LOCKSTEP_SEEDED_TRIGGERED(R01) where the outcome really differs from the right one.
//
// Compiled once, outside of the inline namespaces: all builds of the reducer share the selection.
// Threads: select() while nothing of the patched code runs; the rest from any thread.
// Cost of a bug that is off: one relaxed load and a comparison with a constant.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep::seeded {

// The header lines of a patch.
struct Bug {
  std::string_view id;
  std::string_view source;  // where it happened
  std::string_view oracle;  // which one is expected to see it; several with commas between them
  std::string_view what;
};

// All that are compiled in, ascending by id.
std::span<const Bug> bugs();

// Switches exactly this one on, and sets the counters to 0. "" switches all off. An id that is not
// compiled in gives false and changes nothing.
bool select(std::string_view id);
std::string_view selected();  // "" when none is

// Since the last select(), in this process.
std::uint64_t reached();
std::uint64_t triggered();

// Ids as numbers, so that a question costs no comparison of texts: FNV-1a, never 0.
constexpr std::uint64_t number_of(std::string_view id) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash | 1;
}

namespace internal {

extern std::atomic<std::uint64_t> selected_number;  // 0: none
void count_reached();
void count_triggered();

// A number as a template argument: worked out by the compiler in every build type.
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
