// HostMemory is the memory that the ranks of a group share if all of them run on one host, and the
// rounds in it (comm/shared_rounds.h). While ranks connect, rank 0 makes the memory and invites the
// others; each of them opens it, or knows why it cannot; and all tell each other whether they
// could. Only if all could is the memory used.
//
// The memory has no name, so nothing stays behind when a process is killed: it is an anonymous file
// (memfd_create), which the others open as /proc/PID/fd/N of the process that made it. That works
// for processes of one user which see each other: not between hosts, nor between containers. What
// they find there must be sealed, so that nobody can cut it off, and begin with a secret that went
// through the store; then it is no memory of another job, user or container. Pages are taken at
// once, so that a host without memory refuses here, and kills nobody later.
//
// Threads: one thread connects. Afterwards rounds() belongs to the process group.
// Failure: why_not() says why there are no rounds; the group then sends over TCP.
// Fork: a child does not inherit the memory.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "reducer/base/status.h"
#include "reducer/comm/shared_rounds.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class HostMemory {
 public:
  static constexpr int kMostRanks = 64;  // Every rank waits for every other one, in each round.

  HostMemory(int rank, int size) : rank_(rank), size_(size) {}
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  // Rank 0 makes the memory; the text goes to the other ranks. Empty if there is none.
  std::string make_and_invite();
  // The other ranks open it.
  void open(std::string_view invitation);
  // This rank cannot use the memory, or does not want to.
  void refuse(std::string reason);
  bool is_mapped() const { return memory_ != nullptr; }
  // All ranks have said whether they could; `other` is one that could not, or kNone. Frees what is
  // not needed any more.
  void settle(int other);

  // Null if the memory is not used; why_not() then says why.
  SharedRounds* rounds() { return rounds_.get(); }
  const std::string& why_not() const { return why_not_; }

 private:
  std::size_t place_bytes() const;
  std::size_t bytes() const;  // Of all of the memory.
  std::string map(int file);  // Returns what went wrong.
  void unmap();

  const int rank_;
  const int size_;
  int file_ = -1;
  std::byte* memory_ = nullptr;
  std::unique_ptr<SharedRounds> rounds_;
  std::string why_not_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
