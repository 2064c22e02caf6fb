#include "reducer/comm/nccl/nccl_group_communicator.h"

#include <utility>

#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

std::uint64_t hash_of(const NcclUniqueId& id) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : id.internal) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace

using platform::Deadline;

// Rank 0 gets the id from NCCL, and gives it to the others.
Result<NcclUniqueId> NcclGroupCommunicator::meet(Deadline deadline) {
  peers_.announce_presence();
  if (peers_.rank() != 0) return peers_.receive_id(deadline);
  NcclUniqueId id{};
  const NcclResult result = api().get_unique_id(&id);
  Status status = peers_.send_id(id, link_.checked("ncclGetUniqueId", result));
  if (!status.ok()) return failed(std::move(status));
  return id;
}

Status NcclGroupCommunicator::connect(Deadline deadline) {
  LOCKSTEP_CHECK_EQ(*origin_, '\0');  // A communicator is made once.
  origin_ = "ncclCommInitRankConfig";
  Result<NcclUniqueId> id = meet(deadline);
  if (!id) return peers_.report_unconnected(std::move(id.error()));
  id_ = hash_of(*id);
  return link_.init(
      *id, peers_.rank(), peers_.size(), [&] { return peers_.check_connecting(deadline); },
      [&](Status error) { return peers_.report_unconnected(std::move(error)); });
}

Status NcclGroupCommunicator::shrink(NcclGroupCommunicator& parent, NcclLink::Parent state,
                                     const std::vector<int>& excluded, Deadline deadline) {
  LOCKSTEP_CHECK_EQ(*origin_, '\0');  // A communicator is made once.
  LOCKSTEP_CHECK(!excluded.empty());
  LOCKSTEP_CHECK(*parent.origin_ != '\0');
  origin_ = "ncclCommShrink";
  id_ = parent.id_ + 1;
  return link_.init_from(
      parent.link_, state, excluded, peers_.rank(), peers_.size(),
      [&] { return peers_.check_connecting(deadline); },
      [&](Status error) { return peers_.report_unconnected(std::move(error)); });
}

void NcclGroupCommunicator::end() {
  const bool is_wanted = options_.keeps_for_shrink && api().comm_shrink != nullptr;
  if (is_wanted)
    link_.revoke(options_.grace, Deadline::in(options_.end_timeout));
  else
    link_.abort(options_.grace);
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
