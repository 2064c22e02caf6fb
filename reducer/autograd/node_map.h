// NodeMap is a map from nodes to numbers, for walks over a graph. It uses open addressing. clear()
// keeps the memory and costs nothing, because each entry carries the number of the walk that made
// it. The map is only looked up, never iterated, so addresses do not influence any order.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "reducer/base/build_namespace.h"
#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class Node;

class NodeMap {
 public:
  NodeMap() : entries_(64) {}

  void clear() {
    size_ = 0;
    if (++walk_ != 0) return;
    // The numbers of walks have wrapped around, so they start again.
    entries_.assign(entries_.size(), Entry{});
    walk_ = 1;
  }

  // Returns the number of `node` and whether the map had it. A new node gets `number`.
  std::pair<std::uint32_t, bool> insert(const Node* node, std::uint32_t number) {
    LOCKSTEP_CHECK(node != nullptr);
    if (2 * (size_ + 1) > entries_.size()) grow();
    Entry& entry = find(node);
    if (entry.walk == walk_) return {entry.number, true};
    entry = {node, walk_, number};
    ++size_;
    return {number, false};
  }

  // Returns the number of `node`, or `fallback` if the map does not have it.
  std::uint32_t number_or(const Node* node, std::uint32_t fallback) {
    const Entry& entry = find(node);
    return entry.walk == walk_ ? entry.number : fallback;
  }

  // Returns the number of a node that the map has.
  std::uint32_t at(const Node* node) {
    const Entry& entry = find(node);
    LOCKSTEP_CHECK_EQ(entry.walk, walk_);
    return entry.number;
  }

 private:
  struct Entry {
    const Node* node = nullptr;
    std::uint32_t walk = 0;
    std::uint32_t number = 0;
  };

  Entry& find(const Node* node) {
    const std::size_t mask = entries_.size() - 1;
    std::size_t i = (reinterpret_cast<std::uintptr_t>(node) * 0x9e3779b97f4a7c15ull) >> 32 & mask;
    while (entries_[i].walk == walk_ && entries_[i].node != node) i = (i + 1) & mask;
    return entries_[i];
  }

  void grow() {
    std::vector<Entry> old(2 * entries_.size());
    old.swap(entries_);
    for (const Entry& entry : old)
      if (entry.walk == walk_) find(entry.node) = entry;
  }

  std::vector<Entry> entries_;  // Its size is a power of two.
  std::size_t size_ = 0;
  std::uint32_t walk_ = 1;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
