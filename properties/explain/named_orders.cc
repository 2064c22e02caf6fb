#include "properties/explain/named_orders.h"

#include <fmt/format.h>

#include "reference/order_families.h"

namespace lockstep::properties {
namespace {

using reference::Chunks;
using reference::Direction;

constexpr std::uint64_t kGlooSegmentBytes = std::uint64_t{1} << 20U;
constexpr std::uint32_t kMostChildren = 8;

const char* text_of_chunks(Chunks chunks) {
  switch (chunks) {
    case Chunks::kFirstLonger:
      return "the first chunks longer";
    case Chunks::kLastLonger:
      return "the last chunk longer";
    case Chunks::kRoundedUp:
    case Chunks::kAboveGrain:
      break;
  }
  return "the last chunks shorter";
}

void add_trees(std::uint32_t ranks, std::uint64_t elements, std::vector<NamedOrder>& out) {
  out.push_back({"doubling", reference::doubling(ranks, elements)});
  out.push_back({"halving", reference::halving(ranks, elements)});
  out.push_back({"chain", reference::chain(ranks, elements)});
  for (std::uint32_t k = 2; k <= kMostChildren; ++k) {
    out.push_back(
        {fmt::format("k-nomial tree, radix {}", k), reference::knomial(ranks, elements, k)});
    out.push_back(
        {fmt::format("tree of {} children each", k), reference::kary(ranks, elements, k)});
    out.push_back(
        {fmt::format("tree of {} children, dealt out", k), reference::fanout(ranks, elements, k)});
  }
}

// Chunks of some rings are whole cache lines.
constexpr std::uint64_t kLineBytes = 64;

void add_rings(std::uint32_t ranks, std::uint64_t elements, const std::string& chunks,
               reference::Ring shape, std::vector<NamedOrder>& out) {
  for (const Direction direction : {Direction::kUp, Direction::kDown}) {
    shape.direction = direction;
    for (shape.start = 0; shape.start < ranks; ++shape.start)
      out.push_back({fmt::format("ring {} from c+{}, {}",
                                 direction == Direction::kUp ? "up" : "down", shape.start, chunks),
                     reference::ring(ranks, elements, shape)});
  }
}

void add_rings(std::uint32_t ranks, std::uint64_t elements, std::uint64_t element_bytes,
               std::vector<NamedOrder>& out) {
  for (const Chunks chunks : {Chunks::kFirstLonger, Chunks::kLastLonger, Chunks::kRoundedUp})
    add_rings(ranks, elements, text_of_chunks(chunks), {Direction::kUp, 0, chunks}, out);
  add_rings(ranks, elements, fmt::format("chunks of whole {} bytes", kLineBytes),
            {Direction::kUp, 0, Chunks::kAboveGrain, kLineBytes / element_bytes}, out);
}

}  // namespace

std::vector<NamedOrder> named_orders(std::uint32_t ranks, std::uint64_t elements,
                                     std::uint64_t element_bytes, std::uint64_t nccl_chunk_bytes) {
  const auto nccl = [&](reference::NcclRing of) {
    return reference::nccl_ring(ranks, elements, element_bytes, nccl_chunk_bytes, of);
  };
  // Trees that have several ranks in common with Gloo's bcube come behind it, and so on: the names
  // that the contract declares come first.
  std::vector<NamedOrder> out = {
      {"rank order", reference::rank_order(ranks, elements)},
      {"Gloo's ring", reference::gloo_ring(ranks, elements, element_bytes, kGlooSegmentBytes)},
      {"Gloo's bcube", reference::gloo_bcube(ranks, elements)},
      {"NCCL's ring (2.22 and newer)", nccl(reference::NcclRing::kSince222)},
      {"NCCL's ring (2.20 and 2.21)", nccl(reference::NcclRing::kSince220)},
      {"NCCL's ring (2.18 and 2.19)", nccl(reference::NcclRing::kUpTo219)}};
  add_trees(ranks, elements, out);
  add_rings(ranks, elements, element_bytes, out);
  return out;
}

std::string text_of(const std::vector<reference::OrderRun>& runs, std::uint32_t ranks) {
  if (runs.size() == 1) return reference::text_of(runs.front(), ranks);
  std::string out;
  std::uint64_t begin = 0;
  for (const reference::OrderRun& run : runs) {
    out += fmt::format("{}[{}, {}) {}", out.empty() ? "" : ", ", begin, run.end,
                       reference::text_of(run, ranks));
    begin = run.end;
  }
  return out;
}

}  // namespace lockstep::properties
