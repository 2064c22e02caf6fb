// DType lists the element types that gradients may have. Sizes are in bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep {

// kComplex64 is a pair of float32, with the real part first. It is added, scaled and sent as two
// float32.
enum class DType : std::uint8_t {
  kFloat64,
  kFloat32,
  kFloat16,
  kBFloat16,
  kInt32,
  kByte,
  kComplex64
};

// The real type that an element consists of, and how many of them it has.
constexpr DType real_of(DType dtype) {
  return dtype == DType::kComplex64 ? DType::kFloat32 : dtype;
}
constexpr int parts_of(DType dtype) { return dtype == DType::kComplex64 ? 2 : 1; }

constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return 8;
    case DType::kComplex64:
      return 8;
    case DType::kFloat32:
      return 4;
    case DType::kInt32:
      return 4;
    case DType::kFloat16:
      return 2;
    case DType::kBFloat16:
      return 2;
    case DType::kByte:
      return 1;
  }
  return 0;
}

constexpr const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return "float64";
    case DType::kFloat32:
      return "float32";
    case DType::kFloat16:
      return "float16";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kInt32:
      return "int32";
    case DType::kByte:
      return "byte";
    case DType::kComplex64:
      return "complex64";
  }
  return "unknown";
}

}  // namespace lockstep
