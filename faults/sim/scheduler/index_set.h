// IndexSet: a set of small numbers as a bit mask. The scheduler stores its runnable fibers in one.
// A second mask has one bit for each word of the first that is not zero, so that the cost of a step
// depends on the members, and hardly on the capacity.
//
// Threads: the caller serializes all calls. insert() requires a number that is not in the set,
// erase() one that is; lowest(), after() and nth() require a set that is not empty. Nothing is
// checked here, because these are the innermost steps of the simulator.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace lockstep::simulation {

template <std::uint32_t kWords>
class IndexSet {
 public:
  static constexpr std::uint32_t kCapacity = kWords * 64;

  void clear() {
    for_each_word([this](std::uint32_t word) { words_[word] = 0; });
    used_.fill(0);
    count_ = 0;
  }
  void insert(std::uint32_t index) {
    words_[index >> 6] |= bit(index);
    used_[index >> 12] |= bit(index >> 6);
    ++count_;
  }
  void erase(std::uint32_t index) {
    std::uint64_t& word = words_[index >> 6];
    word &= ~bit(index);
    if (word == 0) used_[index >> 12] &= ~bit(index >> 6);
    --count_;
  }
  bool contains(std::uint32_t index) const { return (words_[index >> 6] & bit(index)) != 0; }
  std::uint32_t count() const { return count_; }
  bool empty() const { return count_ == 0; }

  std::uint32_t lowest() const { return lowest_of(first_used(0)); }

  // Returns the smallest member above `index`, or the lowest member if there is none.
  std::uint32_t after(std::uint32_t index) const {
    const std::uint32_t word = index >> 6;
    const std::uint64_t rest = words_[word] & above(index & 63);
    if (rest != 0) return first_of(word, rest);
    const std::uint64_t later = used_[word >> 6] & above(word & 63);
    if (later != 0) return lowest_of(first_of(word >> 6, later));
    const std::uint32_t next = first_used((word >> 6) + 1);
    return next == kWords ? lowest() : lowest_of(next);
  }

  // Returns the n-th member in ascending order; requires n < count().
  std::uint32_t nth(std::uint32_t n) const {
    for (std::uint32_t word = first_used(0);; ++word)
      for (std::uint64_t rest = words_[word]; rest != 0; rest &= rest - 1)
        if (n-- == 0) return first_of(word, rest);
  }

  // Calls visit(index) for every member in ascending order. The visitor may erase the member it is
  // given.
  template <class Visit>
  void for_each(Visit visit) const {
    for_each_word([&](std::uint32_t word) {
      for (std::uint64_t rest = words_[word]; rest != 0; rest &= rest - 1)
        visit(first_of(word, rest));
    });
  }

 private:
  static constexpr std::uint32_t kUsedWords = (kWords + 63) / 64;

  static std::uint64_t bit(std::uint32_t index) { return std::uint64_t{1} << (index & 63); }
  // The bits above number `at`.
  static std::uint64_t above(std::uint32_t at) { return (~std::uint64_t{0} << 1) << at; }
  static std::uint32_t first_of(std::uint32_t word, std::uint64_t bits) {
    return word * 64 + static_cast<std::uint32_t>(std::countr_zero(bits));
  }
  std::uint32_t lowest_of(std::uint32_t word) const { return first_of(word, words_[word]); }
  // Returns the first word with a member, from word 64 * `from` on; kWords if there is none.
  std::uint32_t first_used(std::uint32_t from) const {
    for (; from < kUsedWords; ++from)
      if (used_[from] != 0) return first_of(from, used_[from]);
    return kWords;
  }
  template <class Visit>
  void for_each_word(Visit visit) const {
    for (std::uint32_t i = 0; i < kUsedWords; ++i)
      for (std::uint64_t rest = used_[i]; rest != 0; rest &= rest - 1) visit(first_of(i, rest));
  }

  std::array<std::uint64_t, kWords> words_{};
  std::array<std::uint64_t, kUsedWords> used_{};  // which of the words are not zero
  std::uint32_t count_ = 0;
};

// RunSet: an IndexSet that also stores its members in an array, so that a random member is found
// without a search. The order of the array depends only on the history of calls.
template <std::uint32_t kWords>
class RunSet {
 public:
  void clear() { set_.clear(); }
  void insert(std::uint32_t index) {
    const std::uint32_t at = set_.count();
    members_[at] = static_cast<std::uint16_t>(index);
    place_[index] = static_cast<std::uint16_t>(at);
    set_.insert(index);
  }
  void erase(std::uint32_t index) {
    set_.erase(index);
    const std::uint16_t last = members_[set_.count()];
    members_[place_[index]] = last;
    place_[last] = place_[index];
  }
  bool contains(std::uint32_t index) const { return set_.contains(index); }
  std::uint32_t count() const { return set_.count(); }
  bool empty() const { return set_.empty(); }
  std::uint32_t lowest() const { return set_.lowest(); }
  std::uint32_t after(std::uint32_t index) const { return set_.after(index); }
  std::uint32_t any(std::uint32_t n) const { return members_[n]; }  // requires n < count()
  const IndexSet<kWords>& set() const { return set_; }

 private:
  IndexSet<kWords> set_;
  std::array<std::uint16_t, IndexSet<kWords>::kCapacity> members_{};
  std::array<std::uint16_t, IndexSet<kWords>::kCapacity> place_{};
};

}  // namespace lockstep::simulation
