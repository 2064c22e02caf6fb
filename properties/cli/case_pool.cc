#include "properties/cli/case_pool.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "reducer/base/check.h"

namespace lockstep::properties {

CasePool::CasePool(std::vector<PoolStation> stations, int jobs)
    : stations_(std::move(stations)), waiting_(stations_.size()) {
  LOCKSTEP_CHECK(jobs > 0);
  slots_.resize(static_cast<std::size_t>(jobs));
}

void CasePool::add(const PoolJob& job) {
  LOCKSTEP_CHECK_LT(job.station, stations_.size());
  LOCKSTEP_CHECK(job.value != nullptr);
  waiting_[job.station].push_back(job);
}

// Gives the slot the next job of its station, or one of the station with the most jobs.
void CasePool::begin_next(Slot& slot) {
  const bool stays = slot.server != nullptr && !waiting_[slot.station].empty();
  if (!stays) {
    const auto longest =
        std::max_element(waiting_.begin(), waiting_.end(),
                         [](const auto& a, const auto& b) { return a.size() < b.size(); });
    if (longest == waiting_.end() || longest->empty()) return;
    slot.station = static_cast<std::size_t>(longest - waiting_.begin());
    const PoolStation& station = stations_[slot.station];
    slot.server = std::make_unique<CaseServer>(station.lane, station.subject);
  }
  slot.job = waiting_[slot.station].front();
  waiting_[slot.station].pop_front();
  const bool is_sim = stations_[slot.station].lane == LaneKind::kSim;
  slot.server->begin(*slot.job->value, {is_sim, false, false});
}

std::vector<PoolResult> CasePool::wait(std::chrono::milliseconds turn) {
  std::vector<pollfd> entries;
  for (Slot& slot : slots_) {
    if (!slot.job) begin_next(slot);
    if (slot.job && slot.server->fd() >= 0) entries.push_back({slot.server->fd(), POLLIN, 0});
  }
  if (!entries.empty())
    (void)::poll(entries.data(), entries.size(), static_cast<int>(turn.count()));
  std::vector<PoolResult> out;
  for (Slot& slot : slots_) {
    if (!slot.job) continue;
    std::optional<Outcome> outcome = slot.server->wait(std::chrono::milliseconds(0));
    if (!outcome) continue;
    out.push_back({*slot.job, std::move(*outcome)});
    slot.job.reset();
  }
  return out;
}

bool CasePool::is_done() const {
  return std::all_of(waiting_.begin(), waiting_.end(), [](const auto& w) { return w.empty(); }) &&
         std::none_of(slots_.begin(), slots_.end(),
                      [](const Slot& s) { return s.job.has_value(); });
}

}  // namespace lockstep::properties
