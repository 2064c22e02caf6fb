// DType: the element types that gradients may have. Sizes are in bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep {

enum class DType : std::uint8_t { kFloat64, kFloat32, kFloat16, kBFloat16, kInt32, kByte };

constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
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
  }
  return "unknown";
}

}  // namespace lockstep
