// Operations that are measured over an NCCL library, with their inputs and the exact bits that must
// come out.
//
//   all_reduce    ncclAllReduce, a sum; the bits are those of NCCL's ring as reference/order.h
//                 declares it. Beside its time stand that until the call has returned (enqueue),
//                 and for how long the threads ran that move NCCL's messages (proxy, the sum of all
//                 ranks)
//   rank_ordered  an all-reduce of NcclProcessGroup with rank-ordered sums
//   step          a step of the reducer over four parameters; the averages are whole numbers, exact
//                 in any order of additions
//
// The inputs of the sums are chosen so that the order of additions shows: with three ranks or more,
// different orders give different bits in a good part of the elements.
//
// Pure functions; any thread. Failure: make_operations() refuses what cannot be measured.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "reducer/base/status.h"
#include "reference/order.h"
#include "reference/program.h"

namespace lockstep::properties {

struct Operation {
  enum class Kind : std::uint8_t { kAllReduce, kRankOrdered, kStep };
  Kind kind = Kind::kAllReduce;
  reference::DType dtype = reference::DType::kFloat32;
  std::uint64_t bytes = 0;  // of the whole buffer, or of all gradients
  std::uint32_t ranks = 0;

  std::uint64_t count() const;
  std::string name() const;  // "all_reduce/float32/16 KiB"
  // The names of what the call of a plain sum, and NCCL's proxy for it, cost the host, such as
  // "enqueue/float32/16 KiB".
  std::string enqueue_name() const;
  std::string proxy_name() const;
};

// An operation with its data, which all ranks inherit from the process that made it.
struct PreparedOperation {
  Operation operation;
  std::vector<std::vector<std::byte>> inputs;  // of each rank
  std::vector<std::byte> expected;             // on every rank
};

// The elements of each parameter of a step.
std::vector<std::int64_t> step_parameters(const Operation& operation);

PreparedOperation prepare(const Operation& operation);

// The bits of the sum of all inputs in this order.
std::vector<std::byte> sum_with(const PreparedOperation& prepared,
                                const std::vector<reference::OrderRun>& order);

// The operations of a run: sums of each type and size, rank-ordered sums and steps of float32.
Result<std::vector<Operation>> make_operations(std::uint32_t ranks,
                                               const std::vector<std::uint64_t>& sizes,
                                               const std::vector<std::string>& dtypes);

// "float32".
const char* dtype_name(reference::DType dtype);

// "16 KiB", "20 B".
std::string size_text(std::uint64_t bytes);

// Elements whose bits differ. Both have the same size.
std::uint64_t count_differences(const std::vector<std::byte>& a, const std::vector<std::byte>& b,
                                std::uint32_t element_bytes);

// The bit patterns of `bytes`, one for each element from `first` on, `count` at most.
std::vector<std::uint64_t> bits_of(const std::vector<std::byte>& bytes, std::uint32_t element_bytes,
                                   std::uint64_t first, std::uint64_t count);

}  // namespace lockstep::properties
