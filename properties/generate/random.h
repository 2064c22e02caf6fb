// Dice: the generator's own random numbers. Draw number n of (seed, index) is a hash of the three,
// so the same everywhere: no state but a counter, no distribution of the standard library (those
// differ between implementations). Not thread-safe; one object a case.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace lockstep::properties {

class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t index)
      : state_(mix(mix(seed + kStep) ^ index) + kStep) {}

  std::uint64_t bits() { return mix(state_ += kStep); }
  std::uint32_t word() { return static_cast<std::uint32_t>(bits() >> 32u); }

  // 0 .. n - 1, and 0 for n = 0.
  std::uint32_t below(std::uint32_t n) {
    return static_cast<std::uint32_t>((std::uint64_t{word()} * n) >> 32u);
  }
  std::uint32_t between(std::uint32_t low, std::uint32_t high) {  // both included
    return low + below(high - low + 1);
  }
  bool percent(std::uint32_t chance) { return below(100) < chance; }

  // An index, drawn with weights.
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
  static constexpr std::uint64_t mix(std::uint64_t z) {  // the finaliser of splitmix64
    z = (z ^ (z >> 30u)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27u)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31u);
  }
  std::uint64_t state_;
};

}  // namespace lockstep::properties
