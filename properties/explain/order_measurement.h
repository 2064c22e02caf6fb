// Measurements of orders of addition: what a library is asked to sum (a plan, for
// properties/orders/measure.py), what its ranks wrote, and in which orders they added.
//
// A measurement is one collective with one dtype and size, called some times on a new communicator,
// and then so again on further ones. Where a library has no communicators, all calls are on one.
//
// Threads: any. Failure: files that are not there or torn are a Status that names the file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "properties/explain/find_order.h"
#include "reducer/base/status.h"
#include "reference/program.h"

namespace lockstep::properties {

struct OrderRequest {
  std::string collective;  // a name of measure.py: "all_reduce"
  reference::DType dtype = reference::DType::kFloat32;
  std::uint64_t elements = 0;  // in all; of a reduce_scatter_block a multiple of the ranks
  std::uint32_t calls = 1;
  std::uint32_t repeats = 1;
  std::uint32_t root = 0;
};

struct OrderMeasurement {
  OrderRequest request;
  // Of each repeat and call: which of the sums came out.
  std::vector<std::vector<std::uint32_t>> sums;
  std::vector<FoundOrder> orders;  // of each of the sums
  std::vector<std::uint64_t> hashes;
  bool ranks_agree = true;

  // Every repeat has the same sums in the same call.
  bool is_fixed() const;
};

// Calls of a communicator, counted from 1, that make the same sums. They are the first of all
// measured calls to `last`; the last span goes on.
struct CallSpan {
  std::uint32_t first = 1;
  std::uint32_t last = 1;
  std::uint32_t sums = 0;
};
// Of a measurement that is fixed.
std::vector<CallSpan> spans_of(const OrderMeasurement& measurement);

// Sizes of one algorithm: the measurements at these sizes, with nothing between them.
struct OrderGroup {
  std::uint64_t first = 0;  // elements
  std::uint64_t last = 0;
  const OrderMeasurement* example = nullptr;  // the largest: its chunks are told apart best
  // Of each call, the names that fit at every size. Few elements may not tell calls apart.
  std::vector<std::vector<std::string>> families;
};
// `measurements` are of one collective and dtype, by ascending size.
std::vector<OrderGroup> groups_of(const std::vector<const OrderMeasurement*>& measurements);

// Some sizes from 1 to `most`: each is at most half again as large as the one before it.
std::vector<std::uint64_t> coarse_sizes(std::uint64_t most);
// Up to `count` sizes strictly between the two.
std::vector<std::uint64_t> sizes_between(std::uint64_t low, std::uint64_t high,
                                         std::uint32_t count);

// Writes the plan, and the values of all ranks, into the folder.
Status write_plan(const std::string& folder, std::uint32_t ranks,
                  const std::vector<OrderRequest>& requests);
Result<std::vector<OrderMeasurement>> read_measurements(const std::string& folder,
                                                        std::uint32_t ranks,
                                                        const std::vector<OrderRequest>& requests);

const char* name_of(reference::DType dtype);  // "float32"
Result<reference::DType> dtype_named(const std::string& name);

}  // namespace lockstep::properties
