// The atlas of orders of addition: which library adds in which order, as measured. A row says for
// which versions, ranks, sizes and calls of a communicator it holds, and has the order as a pure
// function. ORDERS.md shows the rows as a table, with the commands that measured them; records of
// the libraries' own sums (properties/explain/recorded) test them.
//
// A row that is not there was not measured: find_order() then answers nothing, rather than a guess.
// Any thread; nothing fails.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/order.h"
#include "reference/program.h"

namespace lockstep::reference {

enum class Collective : std::uint8_t {
  kAllReduce,
  kNonBlockingAllReduce,
  kReduce,  // to root 0
  kReduceScatter,
  kReduceScatterBlock,
};
const char* name_of(Collective collective);  // "all_reduce"
std::optional<Collective> collective_named(std::string_view name);

// What the sizes of a row count.
enum class SizeUnit : std::uint8_t {
  kElements,  // of the whole buffer
  kBytes,     // of the whole buffer
  kRankBytes  // of the part that one rank gets
};

// Which dtypes a row holds for, and how their sums are rounded.
enum class RowTypes : std::uint8_t {
  kAll,          // rounded at each addition
  kNoBFloat16,   // rounded at each addition; bfloat16 has a row of its own
  kBFloat16Wide  // bfloat16 alone, added in float32 and rounded once
};

struct AtlasRow {
  const char* library;  // a name of PyPI or Debian
  const char* first_version;
  const char* last_version;
  Collective collective;
  std::uint32_t first_ranks;
  std::uint32_t last_ranks;
  SizeUnit unit;
  std::uint64_t first_size;
  std::uint64_t last_size;   // kAnySize: as large as was measured
  std::uint32_t first_call;  // of the communicator, counted from 1
  std::uint32_t last_call;   // kEveryCall: all later ones
  const char* algorithm;     // "ring up from c"
  // Null: there is no fixed order, parts arrive as they do.
  std::vector<OrderRun> (*order)(std::uint32_t ranks, std::uint64_t elements,
                                 std::uint64_t element_bytes);
  RowTypes types = RowTypes::kAll;
};
constexpr std::uint32_t kEveryCall = ~std::uint32_t{0};

const std::vector<AtlasRow>& atlas();

struct OrderQuestion {
  std::string_view library;
  std::string_view version;
  Collective collective = Collective::kAllReduce;
  std::uint32_t ranks = 2;
  std::uint64_t elements = 1;
  DType dtype = DType::kFloat32;
  std::uint32_t call = 1;
};

// The row that holds, or null.
const AtlasRow* find_order(const OrderQuestion& question);

// Numbers with dots, compared one after the other: -1, 0 or 1.
int compare_versions(std::string_view a, std::string_view b);

// "for 1,024 to 2,047 elements at 3 ranks", of a dtype with so many bytes.
std::string sizes_of(const AtlasRow& row, std::uint32_t ranks, std::uint64_t element_bytes);

}  // namespace lockstep::reference
