#include "reducer/comm/gloo/collectives.h"

#include <gloo/allgather.h>
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoallv.h>
#include <gloo/broadcast.h>

#include <algorithm>
#include <cstring>

#include "reducer/base/check.h"
#include "reducer/comm/reduce_functions.h"
#include "reducer/comm/shared_collectives.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

std::size_t bytes_of(const Collective& collective) {
  return static_cast<std::size_t>(collective.count) * size_of(collective.dtype);
}

// Scales while it adds. Gloo's ring (gloo/allreduce.cc) cuts the elements into one chunk for each
// rank, and each chunk goes once around the ring and is summed on its way: chunk c starts at rank c
// - 1, as it is, and every other rank adds to it, once. So a rank scales its own elements of each
// chunk that arrives. It also scales the incoming elements where that is the first hop, which is
// the case for chunk rank + 2, from rank + 1.
::gloo::AllreduceOptions::Func scaled_ring_sum(const Collective& collective,
                                               const ::gloo::Context& context,
                                               const GlooOptions& options) {
  const std::uint64_t width = size_of(collective.dtype);
  const std::uint64_t bytes = collective.count * width;
  const auto ranks = static_cast<std::uint64_t>(context.size);
  const std::uint64_t chunk =
      ring_chunk_bytes(collective.count, width, ranks, options.max_segment_bytes);
  const std::uint64_t first = (static_cast<std::uint64_t>(context.rank) + 2) % ranks * chunk;
  const auto sum = scaled_sum_function(collective.dtype);
  LOCKSTEP_CHECK(sum != nullptr);
  const std::byte* const data = collective.data;
  const double factor = collective.factor;
  return [=](void* out, const void* local, const void* incoming, std::size_t elements) {
    const auto at = static_cast<std::uint64_t>(static_cast<const std::byte*>(out) - data);
    // Gloo adds into the data, from whose place the chunk is known.
    LOCKSTEP_CHECK_LE(at + elements * width, bytes);
    const bool is_first_hop = at >= first && at - first < chunk;
    sum(out, local, incoming, elements, factor, is_first_hop ? Scaled::kBoth : Scaled::kLocal);
  };
}

void all_reduce(const Collective& collective, const std::shared_ptr<::gloo::Context>& context,
                std::uint32_t tag, const GlooOptions& options) {
  LOCKSTEP_CHECK(sum_function(collective.dtype) != nullptr);
  // Only in a ring is it known where a sum begins, and what is scaled already.
  LOCKSTEP_CHECK(collective.factor == 1.0 || options.algorithm == GlooOptions::Algorithm::kRing);
  ::gloo::AllreduceOptions gloo(context);
  auto buffer = context->createUnboundBuffer(collective.data, bytes_of(collective));
  // Gloo takes the element's size from a type. Which type does not matter, because the sum is ours.
  switch (size_of(collective.dtype)) {
    case 8:
      gloo.setOutput<std::uint64_t>(std::move(buffer));
      break;
    case 4:
      gloo.setOutput<std::uint32_t>(std::move(buffer));
      break;
    default:
      gloo.setOutput<std::uint16_t>(std::move(buffer));
      break;
  }
  if (collective.factor == 1.0)
    gloo.setReduceFunction(sum_function(collective.dtype));
  else
    gloo.setReduceFunction(scaled_ring_sum(collective, *context, options));
  gloo.setAlgorithm(options.algorithm == GlooOptions::Algorithm::kRing
                        ? ::gloo::AllreduceOptions::Algorithm::RING
                        : ::gloo::AllreduceOptions::Algorithm::BCUBE);
  gloo.setMaxSegmentSize(static_cast<std::size_t>(options.max_segment_bytes));
  gloo.setTag(tag);
  ::gloo::allreduce(gloo);
}

// Every rank gets its piece of the elements from all others, adds in rank order, and sends the sums
// to all. This sends as many bytes as a ring, in two steps.
void rank_ordered_all_reduce(const Collective& collective,
                             const std::shared_ptr<::gloo::Context>& context, std::uint32_t tag,
                             std::vector<std::byte>& scratch) {
  const auto world = static_cast<std::uint64_t>(context->size);
  const auto rank = static_cast<std::uint64_t>(context->rank);
  const std::size_t width = size_of(collective.dtype);
  const std::uint64_t share = (collective.count + world - 1) / world;
  const auto begin = [&](std::uint64_t r) { return std::min(r * share, collective.count); };
  LOCKSTEP_CHECK_LT(rank, world);
  LOCKSTEP_CHECK_EQ(begin(world), collective.count);  // The pieces are the whole.
  std::vector<std::int64_t> sent;
  for (std::uint64_t r = 0; r < world; ++r)
    sent.push_back(static_cast<std::int64_t>((begin(r + 1) - begin(r)) * width));
  const auto own = static_cast<std::size_t>(sent[rank]);
  scratch.resize(std::max<std::size_t>(world * own, 1));
  {
    ::gloo::AlltoallvOptions gloo(context);
    gloo.setInput<std::uint8_t>(context->createUnboundBuffer(collective.data, bytes_of(collective)),
                                sent);
    gloo.setOutput<std::uint8_t>(context->createUnboundBuffer(scratch.data(), world * own),
                                 std::vector<std::int64_t>(world, static_cast<std::int64_t>(own)));
    gloo.setTag(tag);
    ::gloo::alltoallv(gloo);
  }
  std::byte* const sum = collective.data + begin(rank) * width;
  if (own > 0) add_in_order(collective, scratch.data(), own, own, world, sum);
  ::gloo::AllgathervOptions gloo(context);
  std::vector<std::size_t> counts(sent.begin(), sent.end());
  gloo.setOutput<std::uint8_t>(context->createUnboundBuffer(collective.data, bytes_of(collective)),
                               counts);
  gloo.setTag(tag);
  ::gloo::allgatherv(gloo);
}

void broadcast(const Collective& collective, const std::shared_ptr<::gloo::Context>& context,
               std::uint32_t tag) {
  LOCKSTEP_CHECK_LE(0, collective.root);
  LOCKSTEP_CHECK_LT(collective.root, context->size);
  ::gloo::BroadcastOptions gloo(context);
  gloo.setOutput<std::uint8_t>(context->createUnboundBuffer(collective.data, bytes_of(collective)));
  gloo.setRoot(collective.root);
  gloo.setTag(tag);
  ::gloo::broadcast(gloo);
}

// The contribution is copied here, so it may already lie in its place in the result.
void all_gather(const Collective& collective, const std::shared_ptr<::gloo::Context>& context,
                std::uint32_t tag) {
  LOCKSTEP_CHECK(collective.gathered != nullptr);
  const std::size_t bytes = bytes_of(collective);
  std::byte* const own = collective.gathered + static_cast<std::size_t>(context->rank) * bytes;
  if (own != collective.data) std::memmove(own, collective.data, bytes);
  ::gloo::AllgatherOptions gloo(context);
  gloo.setOutput<std::uint8_t>(context->createUnboundBuffer(
      collective.gathered, bytes * static_cast<std::size_t>(context->size)));
  gloo.setTag(tag);
  ::gloo::allgather(gloo);
}

}  // namespace

void run_alone(const Collective& collective) {
  if (collective.op != Op::kAllGather || collective.count == 0) return;
  if (collective.gathered != collective.data)
    std::memmove(collective.gathered, collective.data, bytes_of(collective));
}

void run_collective(const Collective& collective, const std::shared_ptr<::gloo::Context>& context,
                    std::uint32_t tag, const GlooOptions& options,
                    std::vector<std::byte>& scratch) {
  LOCKSTEP_CHECK_LT(0u, collective.count);
  switch (collective.op) {
    case Op::kAllReduceSum:
      if (collective.reduction == Reduction::kRankOrdered)
        return rank_ordered_all_reduce(collective, context, tag, scratch);
      return all_reduce(collective, context, tag, options);
    case Op::kBroadcast:
      return broadcast(collective, context, tag);
    case Op::kAllGather:
      return all_gather(collective, context, tag);
  }
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
