#include "reducer/device/cuda/test_kernel_cases.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ostream>
#include <random>

#include "reducer/base/check.h"
#include "reducer/device/host/host_device.h"
#include "reducer/tensor/half.h"

namespace lockstep {
namespace {

using Bytes = std::vector<std::byte>;

bool is_nan(DType dtype, const std::byte* data) {
  std::uint16_t half = 0;
  float single = 0;
  double wide = 0;
  switch (dtype) {
    case DType::kFloat64:
      std::memcpy(&wide, data, 8);
      return std::isnan(wide);
    case DType::kFloat32:
      std::memcpy(&single, data, 4);
      return std::isnan(single);
    default:
      std::memcpy(&half, data, 2);
      return std::isnan(dtype == DType::kFloat16 ? half_to_float(half) : bfloat16_to_float(half));
  }
}

// A number of a dtype of parts: any bits, or of a size at which sums and products round, or one of
// the special ones.
template <class Bits>
Bits random_bits(std::mt19937_64& random, int exponent_bits) {
  const int width = 8 * static_cast<int>(sizeof(Bits));
  const auto any = static_cast<Bits>(random());
  const auto sign = static_cast<Bits>(Bits{1} << (width - 1));
  const auto infinity =
      static_cast<Bits>(((Bits{1} << exponent_bits) - 1) << (width - 1 - exponent_bits));
  const auto one =
      static_cast<Bits>(((Bits{1} << (exponent_bits - 1)) - 1) << (width - 1 - exponent_bits));
  const auto mantissa = static_cast<Bits>((Bits{1} << (width - 1 - exponent_bits)) - 1);
  switch (random() % 8) {
    case 0:
      return any;
    case 1:  // subnormal
      return static_cast<Bits>(any & (mantissa | sign));
    case 2:
      switch (random() % 6) {
        case 0:
          return 0;
        case 1:
          return sign;
        case 2:
          return infinity;
        case 3:
          return static_cast<Bits>(infinity | sign);
        case 4:
          return static_cast<Bits>(infinity - 1);  // the largest
        default:
          return static_cast<Bits>(infinity | mantissa);  // NaN
      }
    default:  // near 1
      return static_cast<Bits>((one + (random() % 3) * (mantissa + 1)) | (any & (mantissa | sign)));
  }
}

Bytes random_bytes(DType dtype, std::size_t bytes, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes out(bytes);
  const DType part = real_of(dtype);
  const std::size_t size = size_of(part);
  for (std::size_t at = 0; at + size <= bytes; at += size) {
    std::uint64_t bits = random();
    if (part == DType::kFloat64) bits = random_bits<std::uint64_t>(random, 11);
    if (part == DType::kFloat32) bits = random_bits<std::uint32_t>(random, 8);
    if (part == DType::kFloat16) bits = random_bits<std::uint16_t>(random, 5);
    if (part == DType::kBFloat16) bits = random_bits<std::uint16_t>(random, 8);
    std::memcpy(out.data() + at, &bits, size);
  }
  return out;
}

// Strides of a shape whose dimensions lie in memory in the order of that number.
Shape shape_of(const std::vector<std::int64_t>& sizes, std::uint32_t order, std::int64_t step) {
  std::vector<std::size_t> dims(sizes.size());
  for (std::size_t d = 0; d < dims.size(); ++d) dims[d] = dims.size() - 1 - d;
  for (std::size_t left = dims.size(); left > 1; --left) {
    std::swap(dims[left - 1], dims[left - 1 - order % left]);
    order /= static_cast<std::uint32_t>(left);
  }
  Shape shape = Shape::row_major(std::span<const std::int64_t>(sizes));
  std::int64_t stride = step;
  for (const std::size_t d : dims) {
    shape.strides[d] = stride;
    stride *= std::max<std::int64_t>(1, sizes[d]);
  }
  return shape;
}

// Tensors of a side, one behind the other in one storage.
struct Side {
  DType dtype;
  std::vector<Shape> shapes;
  std::vector<std::int64_t> offsets;
  std::int64_t elements = 0;

  void place(const Shape& shape, std::int64_t gap) {
    const auto aligned = static_cast<std::int64_t>(64 / size_of(dtype));
    elements = (elements + aligned - 1) / aligned * aligned + gap;
    shapes.push_back(shape);
    offsets.push_back(elements);
    elements += shape.extent();
  }
  std::size_t bytes() const { return static_cast<std::size_t>(elements) * size_of(dtype); }
  std::vector<Tensor> tensors(const Ref<Storage>& storage) const {
    std::vector<Tensor> out;
    for (std::size_t i = 0; i < shapes.size(); ++i)
      out.emplace_back(storage, offsets[i], dtype, shapes[i]);
    return out;
  }
};

struct Sides {
  Side from;
  Side to;
};

Sides sides_of(const KernelCase& value, DType from, DType to) {
  Sides sides{{from, {}, {}, 0}, {to, {}, {}, 0}};
  for (const KernelPiece& piece : value.pieces) {
    sides.from.place(shape_of(piece.sizes, piece.from_order, piece.from_step), piece.from_gap);
    sides.to.place(shape_of(piece.sizes, piece.to_order, 1), piece.to_gap);
  }
  return sides;
}

Ref<Storage> allocated(Device& device, std::size_t bytes) {
  Result<Ref<Storage>> storage = device.allocate(bytes);
  LOCKSTEP_CHECK(storage.has_value());
  return *storage;
}

std::string difference(DType dtype, const Bytes& expected, const Bytes& got, bool computed) {
  LOCKSTEP_CHECK_EQ(expected.size(), got.size());
  const DType part = real_of(dtype);
  const std::size_t size = size_of(part);
  for (std::size_t at = 0; at + size <= expected.size(); at += size) {
    if (std::memcmp(&expected[at], &got[at], size) == 0) continue;
    if (computed && is_nan(part, &expected[at]) && is_nan(part, &got[at])) continue;
    std::uint64_t bits[2] = {0, 0};
    std::memcpy(&bits[0], &expected[at], size);
    std::memcpy(&bits[1], &got[at], size);
    return "element " + std::to_string(at / size) + ": expected bits " + std::to_string(bits[0]) +
           ", got " + std::to_string(bits[1]);
  }
  return "";
}

// Runs `work` on both sides over the same bytes, and compares what is in `to` then.
template <class Work, class HostWork>
std::string compare(KernelSubject& subject, const KernelCase& value, const Sides& sides,
                    bool computed, Work work, HostWork host_work) {
  const Bytes from = random_bytes(sides.from.dtype, sides.from.bytes(), value.seed);
  const Bytes to = random_bytes(sides.to.dtype, sides.to.bytes(), value.seed + 1);
  HostDevice host;
  Bytes expected(to.size());
  {
    const Ref<Storage> host_from = allocated(host, from.size());
    const Ref<Storage> host_to = allocated(host, to.size());
    if (!from.empty()) std::memcpy(host_from->data(), from.data(), from.size());
    if (!to.empty()) std::memcpy(host_to->data(), to.data(), to.size());
    host_work(host, sides.from.tensors(host_from), sides.to.tensors(host_to));
    if (!to.empty()) std::memcpy(expected.data(), host_to->data(), to.size());
  }
  const Ref<Storage> on_from = allocated(subject.device(), from.size());
  const Ref<Storage> on_to = allocated(subject.device(), to.size());
  subject.write(*on_from, from);
  subject.write(*on_to, to);
  work(subject.device(), sides.from.tensors(on_from), sides.to.tensors(on_to));
  return difference(sides.to.dtype, expected, subject.read(*on_to), computed);
}

template <class Work>
std::string compare(KernelSubject& subject, const KernelCase& value, const Sides& sides,
                    bool computed, Work work) {
  return compare(subject, value, sides, computed, work, work);
}

std::vector<Transfer> transfers_of(const std::vector<Tensor>& gradients,
                                   const std::vector<Tensor>& slots) {
  std::vector<Transfer> out;
  for (std::size_t i = 0; i < slots.size(); ++i)
    out.push_back({&gradients[i], slots[i].data(), &slots[i].shape()});
  return out;
}

bool is_float(DType dtype) { return dtype != DType::kByte && dtype != DType::kInt32; }
DType computed_with(DType dtype) { return is_float(dtype) ? dtype : DType::kFloat32; }
double factor_of(const KernelCase& value) { return is_float(value.dtype) ? value.factor : 1.0; }

}  // namespace

std::ostream& operator<<(std::ostream& out, const KernelCase& value) {
  out << name_of(value.dtype) << " (other " << name_of(value.other) << "), factor " << value.factor
      << ", " << value.shards << " shards, seed " << value.seed;
  for (const KernelPiece& piece : value.pieces) {
    out << "; [";
    for (const std::int64_t size : piece.sizes) out << ' ' << size;
    out << " ] orders " << piece.from_order << ' ' << piece.to_order << " step " << piece.from_step
        << " gaps " << piece.from_gap << ' ' << piece.to_gap;
  }
  return out;
}

std::string expect_gather(KernelSubject& subject, const KernelCase& value) {
  const Sides sides = sides_of(value, value.dtype, value.dtype);
  const double factor = factor_of(value);
  return compare(subject, value, sides, factor != 1.0,
                 [&](Device& device, const auto& from, const auto& to) {
                   device.pack_bucket(device.current_stream(), transfers_of(from, to), factor);
                 });
}

std::string expect_gather_in_place(KernelSubject& subject, const KernelCase& value) {
  Sides sides = sides_of(value, value.dtype, value.dtype);
  sides.from = sides.to;
  const double factor = factor_of(value);
  return compare(subject, value, sides, factor != 1.0,
                 [&](Device& device, const auto&, const auto& to) {
                   device.pack_bucket(device.current_stream(), transfers_of(to, to), factor);
                 });
}

std::string expect_scatter(KernelSubject& subject, const KernelCase& value) {
  const Sides sides = sides_of(value, value.dtype, value.dtype);
  // The slots are the side that is dense here; what is written is strided as `from` is else.
  const Sides turned{sides.to, sides.from};
  return compare(subject, value, turned, false,
                 [&](Device& device, const auto& from, const auto& to) {
                   device.unpack_bucket(device.current_stream(), transfers_of(to, from));
                 });
}

std::string expect_copy(KernelSubject& subject, const KernelCase& value) {
  const Sides sides = sides_of(value, value.dtype, value.dtype);
  return compare(subject, value, sides, false,
                 [&](Device& device, const auto& from, const auto& to) {
                   for (std::size_t i = 0; i < to.size(); ++i)
                     device.copy(device.current_stream(), from[i], to[i]);
                 });
}

std::string expect_add(KernelSubject& subject, const KernelCase& value) {
  const DType dtype = computed_with(value.dtype);
  const Sides sides = sides_of(value, dtype, dtype);
  return compare(subject, value, sides, true,
                 [&](Device& device, const auto& from, const auto& to) {
                   for (std::size_t i = 0; i < to.size(); ++i)
                     device.add(device.current_stream(), from[i], to[i]);
                 });
}

std::string expect_convert(KernelSubject& subject, const KernelCase& value) {
  KernelCase dense = value;
  for (KernelPiece& piece : dense.pieces) {
    piece.from_order = piece.to_order;
    piece.from_step = 1;
  }
  const DType dtype = computed_with(value.dtype);
  const DType other = dtype == DType::kComplex64 ? dtype : value.other;
  const Sides sides = sides_of(dense, dtype, other);
  return compare(subject, value, sides, true,
                 [&](Device& device, const auto& from, const auto& to) {
                   for (std::size_t i = 0; i < to.size(); ++i)
                     device.convert(device.current_stream(), from[i], to[i], value.factor);
                 });
}

std::string expect_fold(KernelSubject& subject, const KernelCase& value) {
  const DType dtype = computed_with(value.dtype);
  Sides sides{{dtype, {}, {}, 0}, {dtype, {}, {}, 0}};
  for (const KernelPiece& piece : value.pieces) {
    std::int64_t count = 1;
    for (const std::int64_t size : piece.sizes) count *= size;
    sides.from.place(Shape::row_major({value.shards, count}), piece.from_gap);
    sides.to.place(Shape::row_major({count}), piece.to_gap);
  }
  const auto on_host = [&](Device& host, const auto& from, const auto& to) {
    for (std::size_t i = 0; i < to.size(); ++i) {
      const std::int64_t count = to[i].elements();
      const Tensor scaled = *Tensor::empty(host, dtype, to[i].shape());
      for (std::uint32_t r = 0; r < value.shards; ++r) {
        const std::int64_t first = sides.from.offsets[i] + r * count;
        const Tensor shard(from[i].storage(), first, dtype, to[i].shape());
        const Tensor& place = r == 0 ? to[i] : scaled;
        const Transfer transfer{&shard, place.data(), &place.shape()};
        host.pack_bucket({}, {&transfer, 1}, value.factor);
        if (r > 0) host.add({}, scaled, to[i]);
      }
    }
  };
  return compare(
      subject, value, sides, true,
      [&](Device&, const auto& from, const auto& to) {
        for (std::size_t i = 0; i < to.size(); ++i)
          subject.reduce_in_rank_order(from[i], to[i], value.factor);
      },
      on_host);
}

}  // namespace lockstep
