// Nursery: a process of a rank program that forks ranks' processes off itself, so that what is dear
// to load (libtorch: a second of a processor) is loaded once for all of them, and a rank that was
// killed is there again at once.
//
// A rank's process is not the nursery's child for long: the process in between ends, and the rank
// falls to this process, which can wait for it as for any child of its own (it becomes a subreaper
// for that). Ranks outlive their nursery, but not this process.
//
// Threads: one caller. The rank program must have one thread when it begins to serve. Failure: a
// nursery that has ended is an error of the next make(), kPeerLost, and is started anew by the one
// after it. Any other error is what the system refused.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "properties/lane/rank_server.h"
#include "reducer/base/status.h"

namespace lockstep::properties {

class RankForkServer {
 public:
  // `program` is started as `program rank-nursery FD` when the first rank is asked for.
  explicit RankForkServer(std::string program) : program_(std::move(program)) {}
  ~RankForkServer() { end(); }
  RankForkServer(const RankForkServer&) = delete;
  RankForkServer& operator=(const RankForkServer&) = delete;

  // A process that serves ranks on copies of `fds`, each on a thread of its own if there are
  // several (rank_server.h). At most reference::kMaxWorld.
  Result<pid_t> make(const std::vector<int>& fds);

 private:
  Status start();
  void end();

  const std::string program_;
  pid_t pid_ = -1;
  int fd_ = -1;
};

// Starts `program COMMAND 3`, whose descriptor 3 is `fd`.
Result<pid_t> spawn_server(const std::string& program, const char* command, int fd);

// main() of a nursery; `fd` is its end of the socket. Returns the exit status, in each of its
// ranks, too.
int serve_nursery(int fd, RankProgram& program);

}  // namespace lockstep::properties
