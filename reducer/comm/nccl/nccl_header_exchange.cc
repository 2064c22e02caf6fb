#include "reducer/comm/nccl/nccl_header_exchange.h"

#include "reducer/base/check.h"
#include "reducer/comm/nccl/compare_headers.h"
#include "reducer/device/grow.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

NcclHeaderExchange::NcclHeaderExchange(NcclLink& link, Device& device, const Stream& stream,
                                       int rank, int size)
    : link_(link),
      device_(device),
      stream_(stream),
      rank_(rank),
      size_(size),
      compared_(static_cast<std::size_t>(size)) {
  LOCKSTEP_CHECK_LE(0, rank);
  LOCKSTEP_CHECK_LT(rank, size);
}

Status NcclHeaderExchange::reserve() {
  const std::size_t bytes = kSlots * static_cast<std::size_t>(size_) * sizeof(CollectiveHeader);
  LOCKSTEP_RETURN_IF_ERROR(gathered_.grow(device_, stream_, bytes));
  LOCKSTEP_RETURN_IF_ERROR(grow(device_, sent_, bytes));
  return grow(device_, received_, bytes);
}

std::size_t NcclHeaderExchange::offset_of(const CollectiveHeader& own) const {
  LOCKSTEP_CHECK_LE(0, own.sequence);
  const auto slot = static_cast<std::uint64_t>(own.sequence) % kSlots;
  return slot * static_cast<std::size_t>(size_) * sizeof(CollectiveHeader);
}

Result<Event> NcclHeaderExchange::submit(const CollectiveHeader& header) {
  LOCKSTEP_CHECK_LT(0u, sent_.bytes());
  const std::size_t offset = offset_of(header);
  const std::size_t own = offset + static_cast<std::size_t>(rank_) * sizeof(CollectiveHeader);
  sent_.write(own, &header, sizeof header);
  device_.upload(stream_, sent_, own, gathered_.data() + own, sizeof header);
  Status status = link_.call("the exchange of headers", [&](NcclComm comm) {
    return link_.api().all_gather(gathered_.data() + own, gathered_.data() + offset,
                                  sizeof(CollectiveHeader), NcclDataType::kUint8, comm,
                                  device_.native(stream_));
  });
  if (!status.ok()) return failed(std::move(status));
  device_.download(stream_, gathered_.data() + offset, received_, offset,
                   static_cast<std::size_t>(size_) * sizeof(CollectiveHeader));
  return device_.record(stream_);
}

Status NcclHeaderExchange::compare(const CollectiveHeader& own) {
  received_.read(offset_of(own), compared_.data(), compared_.size() * sizeof(CollectiveHeader));
  if (compared_[static_cast<std::size_t>(rank_)] != own)
    return Status(Code::kTransport, "what this rank sent about its " + describe(own) +
                                        " came back from NCCL as something else");
  return compare_headers(compared_, rank_);
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
