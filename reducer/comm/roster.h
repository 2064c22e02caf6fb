// Roster: which processes form the next group of ranks, agreed on through the store (F9). After a
// failure the survivors call agree_on_roster(), and so does a process that wants to join. All that
// are in the new roster connect as a new group, and give it to Reducer::reset(), or to a new
// reducer if they join.
//
//   Roster roster = *agree_on_roster(*store, Roster(), mine, deadline);          // the first one
//   ...                                                            // training, until a call fails
//   auto next = agree_on_roster(*store, roster, mine, deadline);
//   if (!next) return next.error();        // left out: only a process that joins may come back
//   reducer.reset({connect(next->prefix(), next->rank, next->size()), store});
//
// How it works. For each generation the processes that want to be in it enter themselves in the
// store, in numbered places. A member of the last roster, having entered itself, waits until as
// many are there as there may be, or until its patience is over, and writes down who is there. The
// store keeps the first value of a key, so there is one roster for each generation, whoever writes.
// Nobody but a member of the last roster writes the next one, so each roster has a process that was
// in the last. A group needs all its members for a collective, and a member that has entered itself
// for the next generation takes part in none of the last: so at most one group at a time can end a
// step. A process that cannot reach the store has no group, and one that is not in the roster
// learns it (kAborted).
//
// Those that stay keep their order, and come before those that join: rank 0, whose state the others
// take (S3), has trained before.
//
// Threads: any; one call for a process at a time. Failure: kAborted if the generation has a roster
// without this process; kTimeout at the deadline, and if fewer are there than there must be; what
// the store fails with. After a failure the process is in no group.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reducer/base/status.h"
#include "reducer/comm/store.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

struct Roster {
  std::int64_t generation = kNone;
  std::vector<std::string> members;  // by rank
  int stayed = 0;                    // ranks below this were in the last roster, too
  int rank = kNone;                  // of this process

  int size() const { return static_cast<int>(members.size()); }
  // Of the keys of this group in the store.
  std::string prefix() const { return "group/" + std::to_string(generation); }
};

struct RosterOptions {
  std::string name;  // of this process, another one for each process that ever takes part
  int fewest = 1;    // members
  int most = 1;      // as soon as so many are there, nobody waits for more
  // How long a member of the last roster waits for others. Longer than the survivors of a failure
  // need to notice it, which is the timeout of their group and a little more.
  platform::Duration patience{};
};

constexpr int kMostMembers = 65'536;

// `last`: the roster of this process. A process without one joins: it begins the first group of all
// together with the others, or waits until the members of the newest group agree on the next one.
Result<Roster> agree_on_roster(Store& store, const Roster& last, const RosterOptions& options,
                               platform::Deadline deadline);

// Whether somebody waits to join the group that comes after this one. The members decide together
// when they let them: all must stop in the same step, as with a collective of what rank 0 has seen.
Result<bool> somebody_waits(Store& store, const Roster& roster);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
