#include "properties/lane/nccl_plan.h"

#include <algorithm>
#include <optional>

#include "faults/sim/nccl/nccl_profile.h"

namespace lockstep::properties {
namespace {

using faults::Fault;
using faults::Kind;
using faults::net::NetFault;
using faults::net::NetKind;

constexpr std::int64_t kSystemError = 2;  // ncclSystemError, the code that plug-ins should return

// NCCL connects a rank to the next rank of the ring when it initializes the communicator, and by
// one more connection, for send and receive, when the first verified payload goes there. Nothing
// else goes to other ranks, however many connections there are. Later communicators continue the
// count, so the numbers are known only for a program with one group at a time, and not after its
// recoveries.
bool has_one_group(const reference::Program& program) {
  const reference::Replicated& options = program.options;
  const bool has_second = reference::has_backward_group(options);
  return !has_second && (!options.group_each || reference::reducer_count(program) == 1);
}

int connection_of_payloads(const reference::Program& program, const Fault& fault) {
  const std::uint32_t above = fault.rank + reference::group_count(program);
  const std::uint32_t next =
      above < program.world ? above : reference::group_of(program, fault.rank);
  return fault.peer == next ? 1 : LOCKSTEP_NET_ANY;
}

bool are_in_one_group(const reference::Program& program, const Fault& fault) {
  return fault.peer != fault.rank &&
         reference::group_of(program, fault.rank) == reference::group_of(program, fault.peer);
}

std::optional<NetFault> translated(const Case& c, const Fault& fault) {
  NetFault out;
  out.rank = static_cast<int>(fault.rank);
  out.message = fault.site;
  out.waits = true;
  switch (fault.kind) {
    case Kind::kMessageDelay:
      out.kind = NetKind::kDelay;
      out.amount = fault.duration_us;
      return out;
    case Kind::kMessageStall:
      out.kind = NetKind::kStall;
      return out;
    case Kind::kLinkReset:
      out.kind = NetKind::kClose;
      return out;
    case Kind::kOperationError:
      out.kind = NetKind::kError;
      out.amount = kSystemError;
      return out;
    case Kind::kPayloadFlip:
      if (!has_one_group(c.program) || !are_in_one_group(c.program, fault)) break;
      out.kind = NetKind::kFlip;
      out.connection = connection_of_payloads(c.program, fault);
      out.peer = static_cast<int>(fault.peer);
      out.amount = fault.at;
      return out;
    default:
      break;
  }
  return std::nullopt;
}

}  // namespace

bool loses_network_errors(int nccl_version) {
  return !faults::nccl_profile(nccl_version).reports_network_errors;
}

bool is_network_error(faults::Kind kind) {
  return kind == faults::Kind::kOperationError || kind == faults::Kind::kLinkReset;
}

std::vector<PlannedNetFault> net_faults_of(const Case& c) {
  std::vector<PlannedNetFault> out;
  for (std::size_t i = 0; i < c.faults.faults.size(); ++i) {
    const Fault& fault = c.faults.faults[i];
    if (const std::optional<NetFault> net = translated(c, fault))
      out.push_back({i, fault.rank, fault.step, fault.kind, *net});
  }
  if (out.size() > LOCKSTEP_NET_MAX_FAULTS) out.resize(LOCKSTEP_NET_MAX_FAULTS);
  return out;
}

}  // namespace lockstep::properties
