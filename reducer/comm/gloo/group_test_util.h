// Helpers for the tests of this folder: groups whose ranks are threads, and data whose sums are
// exact.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "reducer/comm/gloo/gloo_process_group.h"
#include "reducer/comm/gloo/test_util.h"
#include "reducer/tensor/half.h"

namespace lockstep::testing {

using Group = std::unique_ptr<GlooProcessGroup>;
using Groups = std::vector<Group>;

inline GlooOptions with_timeout(std::chrono::milliseconds timeout) {
  GlooOptions options;
  options.timeout = timeout;
  return options;
}

// Makes groups of `size` ranks in this process, all connected.
inline Groups connect_threads(int size, const GlooOptions& options,
                              const GlooContextOptions& connection = {}) {
  auto store = std::make_shared<HashStore>();
  Groups groups(static_cast<std::size_t>(size));
  on_threads(size, [&](int rank) {
    auto group = GlooProcessGroup::connect(store, rank, size, options, connection);
    ASSERT_TRUE(group.has_value()) << group.error().to_string();
    groups[static_cast<std::size_t>(rank)] = std::move(*group);
  });
  return groups;
}

// Runs body(rank, group) for all groups at once.
inline void on_groups(Groups& groups, const std::function<void(int, GlooProcessGroup&)>& body) {
  on_threads(static_cast<int>(groups.size()),
             [&](int rank) { body(rank, *groups[static_cast<std::size_t>(rank)]); });
}

// Elements of a dtype as bytes. All dtypes hold the small integers used here, and their sums.
class Elements {
 public:
  Elements(DType dtype, std::size_t count)
      : dtype_(dtype), count_(count), bytes_(count * size_of(dtype)) {}

  std::size_t count() const { return count_; }
  std::byte* data() { return count_ == 0 ? nullptr : bytes_.data(); }
  const std::vector<std::byte>& bytes() const { return bytes_; }

  void put(std::size_t index, double value) {
    switch (dtype_) {
      case DType::kFloat64:
        return store(index, value);
      case DType::kFloat32:
        return store(index, static_cast<float>(value));
      case DType::kFloat16:
        return store(index, float_to_half(static_cast<float>(value)));
      case DType::kBFloat16:
        return store(index, float_to_bfloat16(static_cast<float>(value)));
      case DType::kInt32:
        return store(index, static_cast<std::int32_t>(value));
      case DType::kByte:
        return store(index, static_cast<std::uint8_t>(value));
      case DType::kComplex64:  // It is summed as float32.
        break;
    }
  }

  double get(std::size_t index) const {
    switch (dtype_) {
      case DType::kFloat64:
        return load<double>(index);
      case DType::kFloat32:
        return load<float>(index);
      case DType::kFloat16:
        return half_to_float(load<std::uint16_t>(index));
      case DType::kBFloat16:
        return bfloat16_to_float(load<std::uint16_t>(index));
      case DType::kInt32:
        return load<std::int32_t>(index);
      case DType::kByte:
        return load<std::uint8_t>(index);
      case DType::kComplex64:
        break;
    }
    return 0;
  }

 private:
  template <typename T>
  void store(std::size_t index, T value) {
    std::memcpy(bytes_.data() + index * sizeof(T), &value, sizeof(T));
  }
  template <typename T>
  T load(std::size_t index) const {
    T value;
    std::memcpy(&value, bytes_.data() + index * sizeof(T), sizeof(T));
    return value;
  }

  DType dtype_;
  std::size_t count_;
  std::vector<std::byte> bytes_;
};

inline double part_of(int rank, std::size_t index) {
  return static_cast<double>((rank + 1) * static_cast<int>(index % 7 + 1));
}

inline double total_of(int size, std::size_t index) {
  return static_cast<double>(size * (size + 1) / 2 * static_cast<int>(index % 7 + 1));
}

inline Elements part(DType dtype, int rank, std::size_t count) {
  Elements elements(dtype, count);
  for (std::size_t i = 0; i < count; ++i) elements.put(i, part_of(rank, i));
  return elements;
}

inline Collective all_reduce_of(Elements& elements, DType dtype) {
  Collective collective;
  collective.op = Op::kAllReduceSum;
  collective.dtype = dtype;
  collective.count = elements.count();
  collective.data = elements.data();
  return collective;
}

inline void expect_total(const Elements& elements, int size) {
  for (std::size_t i = 0; i < elements.count(); ++i)
    ASSERT_EQ(elements.get(i), total_of(size, i)) << "element " << i;
}

// Runs one exact all-reduce, which shows that the group works.
inline Status sum_once(GlooProcessGroup& group, std::size_t count = 100) {
  Elements elements = part(DType::kFloat32, group.rank(), count);
  const Status status = run(group, all_reduce_of(elements, DType::kFloat32));
  if (status.ok()) expect_total(elements, group.size());
  return status;
}

}  // namespace lockstep::testing
