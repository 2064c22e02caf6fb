#include "faults/nccl_net/link_faults.h"

#include <utility>

#include "reducer/base/check.h"

namespace lockstep::faults::net {
namespace {

bool matches(int wanted, int actual) { return wanted == LOCKSTEP_NET_ANY || wanted == actual; }

std::string rank_text(int rank) { return rank < 0 ? "?" : std::to_string(rank); }

}  // namespace

std::string to_string(const Link& link) {
  return "rank " + rank_text(link.rank) + (link.end == End::kSender ? " -> " : " <- ") +
         rank_text(link.peer) + " (connection " + std::to_string(link.connection) + ")";
}

LinkFaults::LinkFaults(std::shared_ptr<NetPlan> plan, const Link& link) : plan_(std::move(plan)) {
  if (plan_ == nullptr) return;
  for (std::size_t i = 0; i < plan_->faults().size(); ++i) {
    const NetFault& fault = plan_->faults()[i];
    if (fault.end != link.end || !matches(fault.rank, link.rank) ||
        !matches(fault.peer, link.peer) || !matches(fault.connection, link.connection))
      continue;
    entries_.push_back({i, fault, fault.waits ? kNever : 0});
    plan_->count_connection(i);
  }
}

const NetFault* LinkFaults::find(NetKind kind, std::int64_t message) const {
  for (const Entry& entry : entries_)
    if (entry.fault.kind == kind && entry.concerns(message)) return &entry.fault;
  return nullptr;
}

std::size_t LinkFaults::index_of(const NetFault& fault) const {
  for (const Entry& entry : entries_)
    if (&entry.fault == &fault) return entry.index;
  LOCKSTEP_CHECK(false);
}

void LinkFaults::count_posted(std::int64_t messages) {
  for (Entry& entry : entries_) {
    if (entry.fault.waits) follow(entry, messages - 1);
    if (entry.armed_at == kNever || entry.disarmed_at != kNever) continue;
    plan_->count_seen(entry.index, static_cast<std::uint64_t>(messages - entry.armed_at));
  }
}

// A fault is armed once per connection. A fault that has already fired is over for a connection
// created later, for the next communicator, which begins while the fault is still armed.
void LinkFaults::follow(Entry& entry, std::int64_t posted) {
  const bool is_armed = plan_->is_armed(entry.index);
  if (entry.armed_at == kNever) {
    if (!is_armed || plan_->fired(entry.index) > 0) return;
    entry.armed_at = posted;
    entry.fault.message += posted;
  } else if (!is_armed && entry.disarmed_at == kNever) {
    entry.disarmed_at = posted;
  }
}

void LinkFaults::count_fired(const NetFault& fault) { plan_->count_fired(index_of(fault)); }
void LinkFaults::count_idle(const NetFault& fault) { plan_->count_idle(index_of(fault)); }

}  // namespace lockstep::faults::net
