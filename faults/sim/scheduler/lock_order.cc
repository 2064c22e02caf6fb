#include "faults/sim/scheduler/lock_order.h"

#include <algorithm>
#include <cstring>
#include <deque>

#include "reducer/base/check.h"

namespace lockstep::simulation {

namespace {

// The names by number, and a small cache from the address of a literal to its number. The cached
// text is compared again, because another text may later have the same address.
struct NameTable {
  static constexpr std::size_t kCache = 256;
  std::deque<std::string> names;
  std::array<const char*, kCache> pointers{};
  std::array<NameId, kCache> ids{};
};

NameTable& name_table() {
  static NameTable table;
  return table;
}

}  // namespace

NameId intern_name(const char* name) {
  LOCKSTEP_CHECK(name != nullptr);
  NameTable& table = name_table();
  const std::size_t slot = (reinterpret_cast<std::uintptr_t>(name) >> 2) % NameTable::kCache;
  const NameId cached = table.ids[slot];
  if (table.pointers[slot] == name && table.names[cached] == name) return cached;
  const auto found = std::find(table.names.begin(), table.names.end(), name);
  auto id = static_cast<NameId>(found - table.names.begin());
  if (found == table.names.end()) {
    if (id >= kUnjudgedName) {
      if (id == kUnjudgedName) table.names.emplace_back("(one of too many names)");
      return kUnjudgedName;
    }
    table.names.emplace_back(name);
  }
  table.pointers[slot] = name;
  table.ids[slot] = id;
  return id;
}

const char* name_of(NameId id) {
  const NameTable& table = name_table();
  LOCKSTEP_CHECK_LT(id, table.names.size());
  return table.names[id].c_str();
}

void LockOrder::reset() {
  for (const Edge& edge : edges_) after_[edge.held].clear();
  edges_.clear();
}

void LockOrder::add(NameId held, NameId wanted, std::uint32_t fiber) {
  if (held == kUnjudgedName) return;
  if (wanted == kUnjudgedName) return;
  after_[held].insert(wanted);
  edges_.push_back({held, wanted, fiber});
}

std::vector<std::uint32_t> LockOrder::path(NameId from, NameId to) const {
  std::array<std::uint32_t, kMaxNames> came_by;
  came_by.fill(kMaxNames * kMaxNames);
  std::vector<NameId> queue{from};
  for (std::size_t next = 0; next < queue.size(); ++next) {
    for (std::uint32_t e = 0; e < edges_.size(); ++e) {
      const Edge& edge = edges_[e];
      if (edge.held != queue[next] || came_by[edge.wanted] != kMaxNames * kMaxNames) continue;
      came_by[edge.wanted] = e;
      if (edge.wanted == to) {
        std::vector<std::uint32_t> out;
        NameId at = to;
        do {
          out.push_back(came_by[at]);
          at = edges_[out.back()].held;
        } while (at != from);
        std::reverse(out.begin(), out.end());
        return out;
      }
      queue.push_back(edge.wanted);
    }
  }
  return {};
}

std::vector<std::string> LockOrder::violations() const {
  std::vector<std::string> out;
  std::vector<std::vector<std::uint32_t>> seen;  // cycles as sorted lists of edges
  for (std::uint32_t e = 0; e < edges_.size(); ++e) {
    std::vector<std::uint32_t> circle{e};
    if (edges_[e].held != edges_[e].wanted) {
      const std::vector<std::uint32_t> back = path(edges_[e].wanted, edges_[e].held);
      if (back.empty()) continue;
      circle.insert(circle.end(), back.begin(), back.end());
    }
    std::vector<std::uint32_t> sorted = circle;
    std::sort(sorted.begin(), sorted.end());
    if (std::find(seen.begin(), seen.end(), sorted) != seen.end()) continue;
    seen.push_back(std::move(sorted));
    std::string line = name_of(edges_[e].held);
    for (const std::uint32_t step : circle)
      line += std::string(" -> ") + name_of(edges_[step].wanted) + " (fiber " +
              std::to_string(edges_[step].fiber) + ")";
    out.push_back(std::move(line));
  }
  return out;
}

}  // namespace lockstep::simulation
