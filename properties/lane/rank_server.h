// RankServer: a rank's end of ProcessRanks (process_ranks.h), in a process of its own. It receives
// one rank of case after case, runs it, and answers with the observation.
//
// Threads: one caller. Failure: a request that cannot be read ends the process, and the other end
// reports this.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "faults/injector.h"
#include "properties/case/case.h"
#include "properties/observe/meeting.h"
#include "properties/observe/observation.h"
#include "properties/subject/profile.h"

namespace lockstep::properties {

// Messages to the parent begin with a letter that names their type.
constexpr char kMeet = 'm';
constexpr char kPause = 'p';
constexpr char kStop = 's';
constexpr char kExit = 'x';
constexpr char kDone = 'd';
constexpr char kFaults = 'f';  // faults begin on the host; the rank stops until they have begun
// The others go on without the rank: for how long it stops (0: until they are done), or kGoesOn.
constexpr char kLeave = 'l';
constexpr const char* kGoesOn = "goes on";
// From the host of the rank (rank_host.h): the rank's process has ended, and how.
constexpr char kEnded = 'e';

// The work of a rank's process.
struct RankJob {
  const Case* c = nullptr;
  const reference::Expectation* expectation = nullptr;
  std::uint32_t rank = 0;
  std::string directory;   // of the file store; or tcp://HOST:PORT/GENERATION
  std::string address;     // where the other ranks reach this one; empty: on the loopback interface
  bool detailed = false;   // see Observation
  bool is_nccl = false;    // true on the nccl lane, false on the gloo lane
  std::string net_plan;    // nccl lane: the name of the net plug-in's fault plan, or empty
  bool is_thread = false;  // other ranks run in this process
  std::function<Resume(bool finished, std::uint32_t next_step)> meet;
  std::function<void(const faults::Fired& fired)> exit_process;
  std::function<void(std::uint32_t duration_us)> pause_process;
  std::function<void(const std::vector<faults::Fault>& faults)> begin_host_faults;
  std::function<void(bool is_cut_off, std::uint32_t duration_us)> leave_group;
  std::optional<Joining> joining;
  std::function<void()> stop_process;  // until all others have given up or are done
};

// Runs ranks in this process. If several ranks are threads of the process, it runs on several
// threads.
class RankProgram {
 public:
  virtual ~RankProgram() = default;
  virtual Status load(const std::string& subject) = 0;  // the name, as on the command line
  virtual const Profile& profile() const = 0;           // the subject's
  virtual void run(const RankJob& job, RankObservation& observation, faults::Fired& fired) = 0;
};

// main() of a process that serves one rank on each of `fds`, its ends of sockets to the parent.
// Several ranks are threads of the process; then no job may end or stop the process. Returns the
// exit status.
int serve_ranks(const std::vector<int>& fds, RankProgram& program);

}  // namespace lockstep::properties
