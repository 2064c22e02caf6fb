#include "faults/seeded/seeded.h"

#include <algorithm>

namespace lockstep::seeded {
namespace internal {

std::atomic<std::uint64_t> selected_number{0};

namespace {
std::atomic<std::uint64_t> reached_count{0};
std::atomic<std::uint64_t> triggered_count{0};
}  // namespace

void count_reached() { reached_count.fetch_add(1, std::memory_order_relaxed); }
void count_triggered() { triggered_count.fetch_add(1, std::memory_order_relaxed); }

}  // namespace internal

bool select(std::string_view id) {
  const std::span<const Bug> all = bugs();
  const bool known =
      std::any_of(all.begin(), all.end(), [id](const Bug& bug) { return bug.id == id; });
  if (!known && !id.empty()) return false;
  internal::reached_count.store(0, std::memory_order_relaxed);
  internal::triggered_count.store(0, std::memory_order_relaxed);
  internal::selected_number.store(known ? number_of(id) : 0, std::memory_order_relaxed);
  return true;
}

std::string_view selected() {
  const std::uint64_t number = internal::selected_number.load(std::memory_order_relaxed);
  for (const Bug& bug : bugs())
    if (number_of(bug.id) == number) return bug.id;
  return {};
}

std::uint64_t reached() { return internal::reached_count.load(std::memory_order_relaxed); }
std::uint64_t triggered() { return internal::triggered_count.load(std::memory_order_relaxed); }

}  // namespace lockstep::seeded
