#include "properties/lane/nccl_groups.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Whether the group of `place` has only ranks of the last group, but not all of them, and each of
// its ranks has created the last group.
bool NcclGroups::can_shrink(const Last& last, const Place& place) {
  const std::vector<std::uint32_t>& before = last.place.members;
  if (place.generation != last.place.generation + 1) return false;
  if (place.members.size() >= before.size()) return false;
  return std::all_of(place.members.begin(), place.members.end(), [&](std::uint32_t member) {
    const auto found = std::find(before.begin(), before.end(), member);
    if (found == before.end()) return false;
    const auto rank = static_cast<std::size_t>(found - before.begin());
    const Result<bool> has_it = last.place.store->contains(key_of(last.name, rank));
    return has_it && *has_it;
  });
}

Result<std::shared_ptr<NcclProcessGroup>> NcclGroups::make(const Place& place,
                                                           NcclOptions options) {
  options.keeps_for_shrink = keeps_;
  // Even if this group fails, the next one is not created from an older one.
  const Last last = std::exchange(last_[place.series], {});
  const bool is_shrunk = environment_.shrinks && last.group != nullptr && can_shrink(last, place);
  const auto made = [&]() -> Result<std::unique_ptr<NcclProcessGroup>> {
    if (!is_shrunk)
      return NcclProcessGroup::connect(api_, gpu_, place.store, place.rank,
                                       static_cast<int>(place.members.size()), options);
    std::vector<int> excluded;
    for (std::size_t rank = 0; rank < last.place.members.size(); ++rank)
      if (std::find(place.members.begin(), place.members.end(), last.place.members[rank]) ==
          place.members.end())
        excluded.push_back(static_cast<int>(rank));
    if (environment_.excludes_twice) excluded.push_back(excluded.front());
    return NcclProcessGroup::shrink(*last.group, std::move(excluded), place.store, options);
  };
  Result<std::unique_ptr<NcclProcessGroup>> group = made();
  if (!group) return failed(group.error());
  if (is_shrunk) {
    ++shrunk_;
    if ((*group)->origin() == std::string_view("ncclCommShrink")) ++shrunk_by_nccl_;
  }
  Last& kept = last_[place.series];
  kept = {std::move(*group), options.name, place};
  const Result<bool> is_told =
      place.store->set(key_of(options.name, static_cast<std::size_t>(place.rank)), "made");
  if (!is_told) return failed(is_told.error());
  return kept.group;
}

// The others have made their smaller group. This rank must learn that they have, and not wait for
// them until the timeout.
Status NcclGroups::start_one_more(const Last& last, const NcclOptions& options) {
  const platform::Deadline deadline = platform::Deadline::in(2 * options.timeout);
  const int own = last.group->rank();
  for (int rank = 0; rank < own; ++rank) {
    const auto key = key_of(options.name, static_cast<std::size_t>(rank));
    if (Result<std::string> made = last.place.store->get(key, deadline); !made) return made.error();
  }
  std::byte one[sizeof(float)] = {};
  Collective sum;
  sum.count = 1;
  sum.data = one;
  const Status status = run(*last.group, sum);
  if (status.code() != Code::kAborted || status.failure().rank == own)
    return Status(Code::kInternal,
                  "a rank that the others have left had to learn which of them has made a smaller "
                  "group, and learned: " +
                      status.to_string());
  const Result<bool> is_told = last.place.store->set(options.name + "/refused", "yes");
  return is_told ? Status() : is_told.error();
}

// The rank has made a smaller group, and its old one must say so where it is asked for more.
Status NcclGroups::start_in_the_old_one(ProcessGroup& old) {
  std::byte one[sizeof(float)] = {};
  Collective sum;
  sum.count = 1;
  sum.data = one;
  Work work;
  const Status status = old.start(sum, work);
  if (status.ok()) {
    old.abort(Status(Code::kAborted, "its smaller group is used in its place"));
    (void)work.wait(platform::Deadline::never());
    return Status(Code::kInternal, "a group that was made smaller takes another collective");
  }
  const Failure& failure = status.failure();
  const bool is_right = failure.code == Code::kAborted && failure.rank == old.rank() &&
                        failure.reported_by == old.rank() && failure.collective == "all_reduce" &&
                        failure.sequence >= 0 &&
                        failure.detail.find("makes a smaller group") != std::string::npos;
  return is_right ? Status()
                  : Status(Code::kInternal,
                           "a group that was made smaller had to refuse another collective, to "
                           "name it, and to say that rank " +
                               std::to_string(old.rank()) +
                               " has made a smaller group: " + status.to_string());
}

// Makes the group without the last rank, and sums in it.
Status NcclGroups::make_smaller(const Last& last, const NcclOptions& options) {
  const int leaving = last.group->size() - 1;
  const std::vector<int> excluded(environment_.excludes_twice ? 2 : 1, leaving);
  const auto smaller = NcclProcessGroup::shrink(*last.group, excluded, last.place.store, options);
  if (!smaller) return smaller.error();
  LOCKSTEP_RETURN_IF_ERROR(start_in_the_old_one(*last.group));
  const bool can_shrink = api_.comm_shrink != nullptr && !environment_.lacks_shrink;
  if (((*smaller)->origin() == std::string_view("ncclCommShrink")) != can_shrink)
    return Status(Code::kInternal, std::string("a healthy group was made smaller by ") +
                                       (*smaller)->origin() + ", and this NCCL has " +
                                       (can_shrink ? "a" : "no") + " ncclCommShrink");
  float one = 1;
  Collective sum;
  sum.count = 1;
  sum.data = reinterpret_cast<std::byte*>(&one);
  LOCKSTEP_RETURN_IF_ERROR(run(**smaller, sum));
  if (one != static_cast<float>(leaving))
    return Status(Code::kInternal, "the sum of ones in a group of " + std::to_string(leaving) +
                                       " is " + std::to_string(one));
  if (!environment_.late_peer) return {};
  const auto key = key_of(options.name, static_cast<std::size_t>(last.group->rank()));
  const Result<bool> is_told = last.place.store->set(key, "made");
  if (!is_told) return is_told.error();
  const Result<std::string> refused =
      last.place.store->get(options.name + "/refused", platform::Deadline::in(4 * options.timeout));
  return refused ? Status() : refused.error();
}

Status NcclGroups::scale_down(NcclOptions options) {
  if (!environment_.scales_down) return {};
  for (const auto& [series, last] : last_) {
    if (last.group == nullptr || last.group->size() < 2) continue;
    options.name = last.name + "/fewer";
    const bool leaves = last.group->rank() == last.group->size() - 1;
    if (leaves && environment_.late_peer) LOCKSTEP_RETURN_IF_ERROR(start_one_more(last, options));
    if (leaves) continue;
    LOCKSTEP_RETURN_IF_ERROR(make_smaller(last, options));
    ++scaled_down_;
  }
  return {};
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
