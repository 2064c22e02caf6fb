#include "reducer/comm/gloo/collectives.h"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/broadcast.h>

#include <cstring>

#include "reducer/base/check.h"
#include "reducer/comm/gloo/reduce_functions.h"

namespace lockstep::inline LOCKSTEP_NS {
namespace {

std::size_t bytes_of(const Collective& collective) {
  return static_cast<std::size_t>(collective.count) * size_of(collective.dtype);
}

void all_reduce(const Collective& collective, const std::shared_ptr<::gloo::Context>& context,
                std::uint32_t tag, const GlooOptions& options) {
  ::gloo::AllreduceOptions gloo(context);
  auto buffer = context->createUnboundBuffer(collective.data, bytes_of(collective));
  // Gloo learns the element's size from a type; which one does not matter, the sum is ours.
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
  gloo.setReduceFunction(sum_function(collective.dtype));
  gloo.setAlgorithm(options.algorithm == GlooOptions::Algorithm::kRing
                        ? ::gloo::AllreduceOptions::Algorithm::RING
                        : ::gloo::AllreduceOptions::Algorithm::BCUBE);
  gloo.setMaxSegmentSize(static_cast<std::size_t>(options.max_segment_bytes));
  gloo.setTag(tag);
  ::gloo::allreduce(gloo);
}

void broadcast(const Collective& collective, const std::shared_ptr<::gloo::Context>& context,
               std::uint32_t tag) {
  ::gloo::BroadcastOptions gloo(context);
  gloo.setOutput<std::uint8_t>(context->createUnboundBuffer(collective.data, bytes_of(collective)));
  gloo.setRoot(collective.root);
  gloo.setTag(tag);
  ::gloo::broadcast(gloo);
}

// The contribution is copied here, so that it may already lie in its place.
void all_gather(const Collective& collective, const std::shared_ptr<::gloo::Context>& context,
                std::uint32_t tag) {
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
                    std::uint32_t tag, const GlooOptions& options) {
  LOCKSTEP_CHECK_LT(0u, collective.count);
  switch (collective.op) {
    case Op::kAllReduceSum:
      return all_reduce(collective, context, tag, options);
    case Op::kBroadcast:
      return broadcast(collective, context, tag);
    case Op::kAllGather:
      return all_gather(collective, context, tag);
  }
}

}  // namespace lockstep::inline LOCKSTEP_NS
