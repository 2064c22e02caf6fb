#include "properties/generate/fault_amounts.h"

#include <vector>

namespace lockstep::properties {
namespace {

using faults::Fault;
using faults::Kind;

// Returns the amounts of a fault of the network among which the generator chooses: percent, bytes,
// kbit/s, or microseconds (faults/plan.h).
std::vector<std::uint32_t> network_amounts(Kind kind) {
  switch (kind) {
    case Kind::kNetLoss:
      return {1, 10, 50};
    case Kind::kNetHalfOpen:
    case Kind::kNetCut:
      return {0, 40, 1000, 20'000};
    case Kind::kNetBandwidth:
      return {8000, 100'000};
    case Kind::kNetMtu:
      return {576, 1280};
    case Kind::kNetDelay:
      return {1000, 20'000, 100'000};
    default:
      return {0};
  }
}

// Returns the amounts of a fault of a node or of the store among which the generator chooses:
// bytes, twice the milliseconds of a clock, microseconds, recoveries, or how a rank is left out.
std::vector<std::uint32_t> node_amounts(Kind kind) {
  switch (kind) {
    case Kind::kNodeMemory:
      return {0, 65'536, 1'048'576, 16'777'216};
    case Kind::kNodeClock:
      return {10'000, 10'001, 7'200'000, 7'200'001};
    case Kind::kStoreSlow:
      return {1000, 5000, 20'000};
    case Kind::kRankReplaced:
    case Kind::kRankLeftOut:
      return {0, 1};
    default:
      return {0};
  }
}

}  // namespace

void draw_payload(Random& random, const Case& value, std::uint32_t collectives, Fault& fault) {
  fault.site = random.below(2 * collectives + 2);
  fault.peer = (fault.rank + 1 + random.below(value.program.world - 1)) % value.program.world;
  const bool in_seal = random.percent(35);
  const bool is_bit = fault.kind == Kind::kPayloadFlip;
  const std::uint32_t bytes = in_seal ? random.below(64) : 64 + random.below(192);
  const std::uint32_t bit = random.below(8);
  fault.at = is_bit ? 8 * bytes + bit : bytes;
}

void draw_network(Random& random, std::uint32_t world, Fault& fault) {
  const std::uint32_t other = (fault.rank + 1 + random.below(world - 1)) % world;
  fault.peer = random.percent(50) ? other : fault.rank;
  const std::vector<std::uint32_t> amounts = network_amounts(fault.kind);
  const std::uint32_t amount = amounts[random.below(static_cast<std::uint32_t>(amounts.size()))];
  fault.at = random.below(faults::kLinkDirections) + faults::kLinkDirections * amount;
  if (random.percent(50)) fault.duration_us = random.between(20'000, 500'000);
}

void draw_node(Random& random, Fault& fault) {
  const std::vector<std::uint32_t> amounts = node_amounts(fault.kind);
  fault.at = amounts[random.below(static_cast<std::uint32_t>(amounts.size()))];
  if (faults::acts_in_connect(fault.kind) && random.percent(50)) {
    fault.in_reset = true;
    fault.step = 0;
  }
  if (!faults::ends_process(fault.kind) && random.percent(50))
    fault.duration_us = random.between(20'000, 500'000);
}

}  // namespace lockstep::properties
