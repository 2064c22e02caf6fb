// Random work for a device, and whether it does it as HostDevice does, bit for bit: shared by the
// test of the emulated kernels and that of a GPU.
//
// A KernelCase is pieces of tensors of any sizes, strides and alignments. expect_*() do one
// operation of Device on both sides, with the same bytes in all memory before, and compare all of
// the memory that it wrote to, what lies beside the tensors included (G10). The text they return
// tells the first difference; it is empty when there is none. Of a NaN that was computed only that
// it is one counts (G9).
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "reducer/device/device.h"

namespace lockstep {

// The device under test, and what Device has no call for.
class KernelSubject {
 public:
  virtual ~KernelSubject() = default;
  virtual Device& device() = 0;
  virtual void write(const Storage& to, const std::vector<std::byte>& bytes) = 0;
  virtual std::vector<std::byte> read(const Storage& from) = 0;
  virtual void reduce_in_rank_order(const Tensor& from, const Tensor& to, double factor) = 0;
};

struct KernelPiece {
  std::vector<std::int64_t> sizes;
  std::uint32_t from_order = 0;  // of dimensions in memory: which permutation
  std::uint32_t to_order = 0;
  std::int64_t from_step = 1;  // the innermost stride
  std::int64_t from_gap = 0;   // elements before it, beyond what 64 bytes of alignment need
  std::int64_t to_gap = 0;
};

struct KernelCase {
  DType dtype = DType::kFloat32;
  DType other = DType::kFloat32;  // convert's other side
  double factor = 1.0;
  std::uint32_t shards = 1;
  std::uint64_t seed = 0;  // of the values
  std::vector<KernelPiece> pieces;
};

std::ostream& operator<<(std::ostream& out, const KernelCase& value);

// Bytes and integers are moved as they are; what computes takes floats in their place.
std::string expect_gather(KernelSubject& subject, const KernelCase& value);
// Of gradients that are their own slots: scaled where they lie.
std::string expect_gather_in_place(KernelSubject& subject, const KernelCase& value);
std::string expect_scatter(KernelSubject& subject, const KernelCase& value);
std::string expect_copy(KernelSubject& subject, const KernelCase& value);
std::string expect_add(KernelSubject& subject, const KernelCase& value);
std::string expect_convert(KernelSubject& subject, const KernelCase& value);
std::string expect_fold(KernelSubject& subject, const KernelCase& value);

// A case that `draw` makes: draw(n) is a number below n; all zeros is the simplest case.
template <class Draw>
KernelCase draw_case(Draw draw) {
  constexpr DType kDTypes[] = {DType::kFloat32,  DType::kFloat64,   DType::kFloat16,
                               DType::kBFloat16, DType::kComplex64, DType::kByte,
                               DType::kInt32};
  constexpr double kFactors[] = {1.0, 0.5,  1.0 / 3,  1.0 / 7, 0.1,
                                 0.0, -3.0, 0x1p-130, 0x1p120, 1.0 / 1000};
  constexpr std::int64_t kSizes[] = {1,   0,   2,   3,    7,    8,    15,   16,   17,   31,   33,
                                     255, 256, 257, 1023, 1025, 4095, 4096, 4097, 9001, 20000};
  KernelCase value;
  value.dtype = kDTypes[draw(7)];
  value.other = kDTypes[draw(4)];
  value.factor = kFactors[draw(10)];
  value.shards = 1 + static_cast<std::uint32_t>(draw(9));
  value.seed = draw(1u << 20);
  const std::uint64_t count = draw(6);
  for (std::uint64_t i = 0; i < count; ++i) {
    KernelPiece& piece = value.pieces.emplace_back();
    const std::uint64_t dims = draw(7);
    if (dims <= 2)
      piece.sizes = {kSizes[draw(21)]};
    else
      for (std::uint64_t d = 0; d < dims; ++d)
        piece.sizes.push_back(static_cast<std::int64_t>((1 + draw(7)) % 7));
    if (draw(2) == 1) piece.from_order = static_cast<std::uint32_t>(draw(720));
    if (draw(2) == 1) piece.to_order = static_cast<std::uint32_t>(draw(720));
    if (draw(4) == 3) piece.from_step = 2;
    if (draw(2) == 1) piece.from_gap = static_cast<std::int64_t>(draw(20));
    if (draw(2) == 1) piece.to_gap = static_cast<std::int64_t>(draw(20));
  }
  return value;
}

}  // namespace lockstep
