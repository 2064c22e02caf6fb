// RankForkServer: starts a process of a rank program that forks the ranks' processes, so that what
// is expensive to load (libtorch: a second of a processor) is loaded once for all of them, and a
// killed rank is replaced at once.
//
// A rank's process is a child of the fork server only briefly: the process in between ends, and the
// rank becomes a child of this process, which can wait for it as for any child of its own (this
// process becomes a subreaper for that). Ranks outlive their fork server, but not this process.
//
// Threads: one caller. The rank program must have one thread when it begins to serve. Failure: if
// the fork server has ended, the next make() returns kPeerLost, and the make() after it starts a
// new one. Any other error is the system's.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "properties/lane/rank_server.h"
#include "reducer/base/status.h"

namespace lockstep::properties {

class RankForkServer {
 public:
  // The first make() starts `program ARGUMENTS... rank-fork-server FD`.
  explicit RankForkServer(std::string program, std::vector<std::string> arguments = {})
      : program_(std::move(program)), arguments_(std::move(arguments)) {}
  ~RankForkServer() { end(); }
  RankForkServer(const RankForkServer&) = delete;
  RankForkServer& operator=(const RankForkServer&) = delete;

  // Creates a process that serves ranks on copies of `fds`. If there are several, each has a thread
  // of its own (rank_server.h). There are at most reference::kMaxWorld.
  Result<pid_t> make(const std::vector<int>& fds);

 private:
  Status start();
  void end();

  const std::string program_;
  const std::vector<std::string> arguments_;
  pid_t pid_ = -1;
  int fd_ = -1;
};

// Starts `program ARGUMENTS... COMMAND 3`, whose descriptor 3 is `fd`. A program without a folder
// is searched for as a shell does.
Result<pid_t> spawn_server(const std::string& program, const std::vector<std::string>& arguments,
                           const char* command, int fd);

// main() of a fork server; `fd` is its end of the socket. Returns the exit status, in each of its
// ranks, too.
int serve_rank_forks(int fd, RankProgram& program);

}  // namespace lockstep::properties
