// Reads arrays that NumPy wrote with numpy.save() (the format NPY, versions 1 to 3).
// Pure functions of a file; any thread. Failure: one line that names the file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reducer/base/status.h"
#include "reference/program.h"

namespace lockstep::properties {

struct NpyArray {
  reference::DType dtype = reference::DType::kFloat32;
  std::vector<std::uint64_t> sizes;
  bool is_column_major = false;
  std::vector<std::uint64_t> bits;  // in memory order; of each part of a complex number
};

// NumPy has no bfloat16: arrays of 16-bit integers, or of two untyped bytes as ml_dtypes writes
// them, are taken for it.
Result<NpyArray> read_npy(const std::string& file);

}  // namespace lockstep::properties
