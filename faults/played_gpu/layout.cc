#include "faults/played_gpu/layout.h"

#include <algorithm>
#include <array>
#include <string>

#include "reducer/base/check.h"

namespace lockstep::played {
namespace {

constexpr Layout v2_22() {
  Layout it;
  it.version = 22203;
  it.coll_bytes = 64;
  it.coll_receive_buffer = 8;
  it.coll_send_buffer = 16;
  it.coll_counts = 24;
  it.coll_scalar = 56;
  it.coll_registered_bits = 0x6000000;
  it.comm_work_consumed = 32;
  it.comm_abort_flag = 48;
  it.comm_channels = 64;
  it.channel_bytes = 368;
  it.ring_index = 24;
  it.fifo_entry_bytes = 24;
  it.fifo_offset = 4;
  it.fifo_offset_bytes = 4;
  it.fifo_size = 8;
  it.function_bits = 15;
  it.types = 10;
  it.gather_algorithms = 3;
  it.reduce_algorithms = 6;
  return it;
}

// The layout of the release before, as a later one has it.
constexpr Layout since(Layout before, int version) {
  before.version = version;
  return before;
}

constexpr Layout v2_23() {
  Layout it = since(v2_22(), 22304);
  it.coll_bytes = 96;
  it.coll_counts = 56;
  it.coll_scalar = 88;
  it.comm_work_consumed = 40;
  it.comm_abort_flag = 56;
  it.comm_channels = 80;
  it.gather_algorithms = 4;
  return it;
}

constexpr Layout v2_26() {
  Layout it = since(v2_23(), 22602);
  it.comm_channels = 96;
  it.types = 12;
  return it;
}

constexpr Layout v2_27() {
  Layout it = since(v2_26(), 22707);
  it.comm_work_consumed = 0;
  it.comm_abort_flag = 48;
  return it;
}

constexpr Layout v2_29() {
  Layout it = since(v2_27(), 22907);
  it.ring_index = 32;
  it.has_all_gather_v = true;
  return it;
}

constexpr Layout v2_30() {
  Layout it = since(v2_29(), 23007);
  it.coll_bytes = 128;
  it.coll_receive_buffer = 24;
  it.coll_send_buffer = 32;
  it.coll_counts = 80;
  it.coll_scalar = 112;
  return it;
}

constexpr Layout v2_32() {
  Layout it = since(v2_29(), 23203);
  it.fifo_entry_bytes = 32;
  it.fifo_offset = 8;
  it.fifo_offset_bytes = 8;
  it.fifo_size = 16;
  it.function_bits = 11;
  return it;
}

constexpr std::array kLayouts = {v2_22(), v2_23(), v2_26(), v2_27(), since(v2_27(), 22809),
                                 v2_29(), v2_30(), v2_32()};

std::string text_of(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

// A part of the table: the rows of one kind of operation.
struct Part {
  Function::Kind kind;
  const char* name;
  int algorithms;  // 0: all-gather-v, which is not played
  int ring;        // among the algorithms
  bool reduces;    // the rows are then by operation and type
};

std::array<Part, 6> parts_of(const Layout& layout) {
  using enum Function::Kind;
  return {{{kAllGather, "AllGather", layout.gather_algorithms, 0, false},
           {kBroadcast, "Broadcast", 1, 0, false},
           {kP2p, "AllGatherV", layout.has_all_gather_v ? 1 : 0, -1, false},
           {kAllReduce, "AllReduce", layout.reduce_algorithms, kRing, true},
           {kReduce, "Reduce", 1, 0, true},
           {kReduceScatter, "ReduceScatter", layout.gather_algorithms, 0, true}}};
}

std::size_t rows_of(const Layout& layout, const Part& part) {
  const int kinds = part.reduces ? kOperations * layout.types : 1;
  return std::size_t{kProtocols} * static_cast<std::size_t>(kinds) *
         static_cast<std::size_t>(part.algorithms);
}

}  // namespace

std::span<const Layout> layouts() { return kLayouts; }

Result<Layout> layout_of(int version) {
  for (const Layout& each : kLayouts)
    if (each.version == version) return each;
  std::string known;
  for (const Layout& each : kLayouts) known += (known.empty() ? "" : ", ") + text_of(each.version);
  return failed(
      Status(Code::kInvalidArgument, "NCCL " + text_of(version) +
                                         " cannot be played: its structures are known of " + known +
                                         "; take one of them (ci/nccl fetch VERSION)"));
}

std::size_t rows_of(const Layout& layout) {
  std::size_t rows = 1;  // send and receive
  for (const Part& part : parts_of(layout)) rows += rows_of(layout, part);
  return rows;
}

Result<Function> find_function(const Layout& layout, std::span<const int> row_to_id, int id) {
  LOCKSTEP_CHECK_EQ(row_to_id.size(), rows_of(layout));
  if (row_to_id[0] == id) return Function{};
  std::size_t row = 1;
  std::string names;
  for (const Part& part : parts_of(layout)) {
    const std::size_t end = row + rows_of(layout, part);
    for (; row < end; ++row) {
      if (row_to_id[row] != id) continue;
      const auto place = static_cast<int>(row - (end - rows_of(layout, part)));
      const int protocol = place % kProtocols;
      const int algorithm = place / kProtocols % part.algorithms;
      const int kind = place / kProtocols / part.algorithms;
      if (protocol == kSimple && algorithm == part.ring)
        return Function{part.kind, kind / layout.types, kind % layout.types};
      names += std::string(names.empty() ? "" : ", ") + part.name + " with algorithm " +
               std::to_string(algorithm) + " and protocol " + std::to_string(protocol);
    }
  }
  return failed(Status(
      Code::kInvalidArgument,
      names.empty()
          ? "NCCL launches the function " + std::to_string(id) + ", which its table does not have"
          : "NCCL launches " + names +
                ": Ring and Simple alone are played (NCCL_ALGO=Ring NCCL_PROTO=Simple)"));
}

std::size_t chunk_bytes(std::uint8_t encoded) {
  constexpr int kMantissaBits = 3;
  const std::size_t exponent = encoded >> kMantissaBits;
  const std::size_t mantissa = encoded & ((1U << kMantissaBits) - 1);
  if (exponent == 0) return mantissa;
  return (mantissa | 1U << kMantissaBits) << (exponent - 1);
}

}  // namespace lockstep::played
