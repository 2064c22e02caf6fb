// Random: the generator's own random numbers. Number n of (seed, index) is a hash of the three, and
// so the same everywhere: there is no state but a counter, and no distribution of the standard
// library (those differ between implementations). Not thread-safe; use one object per case.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockstep::properties {

class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t index)
      : state_(mix(mix(seed + kStep) ^ index) + kStep) {}

  // Each name has a stream of numbers of its own, so that a new draw changes no other.
  Random(std::uint64_t seed, std::uint64_t index, std::string_view stream)
      : Random(seed ^ number_of(stream), index) {}

  std::uint64_t bits() { return mix(state_ += kStep); }
  std::uint32_t word() { return static_cast<std::uint32_t>(bits() >> 32u); }

  // Returns a number from 0 to n - 1, or 0 if n is 0.
  std::uint32_t below(std::uint32_t n) {
    return static_cast<std::uint32_t>((std::uint64_t{word()} * n) >> 32u);
  }
  std::uint32_t between(std::uint32_t low, std::uint32_t high) {  // both ends are included
    return low + below(high - low + 1);
  }
  bool percent(std::uint32_t chance) { return below(100) < chance; }

  // Draws an index with these weights.
  template <std::size_t N>
  std::uint32_t weighted(const std::array<std::uint16_t, N>& weights) {
    std::uint32_t total = 0;
    for (const std::uint16_t weight : weights) total += weight;
    std::uint32_t drawn = below(total);
    for (std::uint32_t i = 0; i < N; ++i) {
      if (drawn < weights[i]) return i;
      drawn -= weights[i];
    }
    return 0;
  }

 private:
  static constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15u;
  static constexpr std::uint64_t number_of(std::string_view name) {
    std::uint64_t number = 0;
    for (std::size_t i = 0; i < name.size(); ++i) {
      const auto letter = static_cast<unsigned char>(name[i]);
      number = i < 8 ? number << 8u | letter : mix(number ^ letter);
    }
    return number;
  }
  static constexpr std::uint64_t mix(std::uint64_t z) {  // the finalizer of splitmix64
    z = (z ^ (z >> 30u)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27u)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31u);
  }
  std::uint64_t state_;
};

}  // namespace lockstep::properties
