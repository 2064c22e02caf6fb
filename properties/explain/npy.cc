#include "properties/explain/npy.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>

#include "reference/arithmetic.h"

namespace lockstep::properties {
namespace {

using reference::DType;

constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 30;
constexpr std::size_t kMaxHeaderBytes = 64 << 10;

struct Header {
  std::string text;         // a Python dictionary
  std::uint64_t bytes = 0;  // of all before the data
};

std::optional<Header> read_header(std::istream& in) {
  std::array<char, 8> magic{};
  if (!in.read(magic.data(), magic.size()) || std::memcmp(magic.data(), "\x93NUMPY", 6) != 0)
    return std::nullopt;
  const std::size_t width = magic[6] == 1 ? 2 : 4;
  if (magic[6] < 1 || magic[6] > 3) return std::nullopt;
  std::array<unsigned char, 4> length{};
  if (!in.read(reinterpret_cast<char*>(length.data()), static_cast<std::streamsize>(width)))
    return std::nullopt;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < width; ++i) bytes |= static_cast<std::size_t>(length[i]) << (8 * i);
  if (bytes > kMaxHeaderBytes) return std::nullopt;
  Header header{std::string(bytes, '\0'), magic.size() + width + bytes};
  if (!in.read(header.text.data(), static_cast<std::streamsize>(bytes))) return std::nullopt;
  return header;
}

// The text behind 'key': up to the comma or bracket that ends it.
std::string value_of(const std::string& text, const std::string& key) {
  const std::size_t at = text.find("'" + key + "':");
  if (at == std::string::npos) return {};
  std::size_t begin = at + key.size() + 3;
  while (begin < text.size() && text[begin] == ' ') ++begin;
  const bool is_tuple = begin < text.size() && text[begin] == '(';
  const std::size_t end = is_tuple ? text.find(')', begin) : text.find_first_of(",}", begin);
  return end == std::string::npos ? std::string() : text.substr(begin, end - begin);
}

std::optional<DType> dtype_of(const std::string& description) {
  if (description == "'<f4'") return DType::kFloat32;
  if (description == "'<f8'") return DType::kFloat64;
  if (description == "'<f2'") return DType::kFloat16;
  if (description == "'<c8'") return DType::kComplex64;
  if (description == "'<u2'" || description == "'<i2'" || description == "'|V2'" ||
      description == "'<V2'")
    return DType::kBFloat16;
  return std::nullopt;
}

// Sizes, and their product; nothing if the text is no tuple of numbers, or the array is too large.
std::optional<std::uint64_t> read_sizes(const std::string& text, std::uint64_t element_bytes,
                                        std::vector<std::uint64_t>& sizes) {
  if (text.empty() || text[0] != '(') return std::nullopt;
  std::uint64_t count = 1;
  const char* at = text.data() + 1;
  const char* const end = text.data() + text.size();
  while (at < end) {
    std::uint64_t size = 0;
    const auto read = std::from_chars(at, end, size);
    if (read.ec != std::errc()) return std::nullopt;
    if (size != 0 && count > kMaxBytes / element_bytes / size) return std::nullopt;
    count *= size;
    sizes.push_back(size);
    at = read.ptr;
    while (at < end && (*at == ',' || *at == ' ' || *at == 'L')) ++at;
  }
  return count;
}

}  // namespace

Result<NpyArray> read_npy(const std::string& file) {
  const auto refused = [&](const std::string& why) {
    return failed(Status(Code::kInvalidArgument, fmt::format("{}: {}", file, why)));
  };
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error))
    return refused(std::filesystem::exists(file, error) ? "it is not a regular file"
                                                        : "there is no such file");
  std::ifstream in(file, std::ios::binary);
  if (!in) return refused(fmt::format("it cannot be read: {}", std::strerror(errno)));
  const std::optional<Header> header = read_header(in);
  if (!header) return refused("it is not an array that numpy.save() wrote");
  const std::string description = value_of(header->text, "descr");
  const std::optional<DType> dtype = dtype_of(description);
  if (!dtype)
    return refused(
        fmt::format("its dtype is {}; float16, float32, float64, complex64 and 16-bit integers "
                    "(for bfloat16) are known, all little-endian",
                    description.empty() ? "not said" : description));
  NpyArray array;
  array.dtype = *dtype;
  array.is_column_major = value_of(header->text, "fortran_order") == "True";
  const std::optional<std::uint64_t> elements =
      read_sizes(value_of(header->text, "shape"), reference::size_of(*dtype), array.sizes);
  if (!elements)
    return refused(
        fmt::format("its shape cannot be read, or it has more than {} bytes", kMaxBytes));
  const std::size_t width = reference::size_of(*dtype) / reference::parts_of(*dtype);
  const auto announced = *elements * reference::size_of(*dtype);
  if (const auto there = std::filesystem::file_size(file, error); error || there < announced)
    return refused(
        fmt::format("it ends before its last element: {} elements are announced", *elements));
  array.bits.resize(*elements * reference::parts_of(*dtype));
  for (std::uint64_t& bits : array.bits)
    if (!in.read(reinterpret_cast<char*>(&bits), static_cast<std::streamsize>(width)))
      return refused(
          fmt::format("it ends before its last element: {} elements are announced", *elements));
  return array;
}

}  // namespace lockstep::properties
