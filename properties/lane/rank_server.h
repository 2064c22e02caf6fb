// RankServer: a rank's end of ProcessRanks (process_ranks.h), in a process of its own: it is handed
// one rank of case after case, runs it, and answers with what it observed.
//
// Threads: one caller. Failure: a request that cannot be read ends the process, which the other end
// reports.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "faults/injector.h"
#include "properties/case/case.h"
#include "properties/lane/meeting.h"
#include "properties/lane/observation.h"
#include "reference/contract.h"

namespace lockstep::properties {

// Messages to the parent start with a letter that says what they are.
constexpr char kMeet = 'm';
constexpr char kPause = 'p';
constexpr char kStop = 's';
constexpr char kExit = 'x';
constexpr char kDone = 'd';

// What a rank's process is asked to do.
struct RankJob {
  const Case* c = nullptr;
  const reference::Expectation* expectation = nullptr;
  std::uint32_t rank = 0;
  std::string directory;   // of the file store
  bool detailed = false;   // see Observation
  bool is_nccl = false;    // on the nccl lane, else on the gloo lane
  std::string net_plan;    // nccl lane: the name of the net plug-in's fault plan, or empty
  bool is_thread = false;  // other ranks run in this process
  std::function<Resume(bool finished, std::uint32_t next_step)> meet;
  std::function<void(const faults::Fired& fired)> exit_process;
  std::function<void(std::uint32_t duration_us)> pause_process;
  std::function<void()> stop_process;  // until all others have given up or are done
};

// What runs ranks in this process; on several threads, if ranks are threads of it.
class RankProgram {
 public:
  virtual ~RankProgram() = default;
  virtual Status load(const std::string& subject) = 0;      // as on the command line
  virtual const reference::Contract& contract() const = 0;  // of the subject
  virtual void run(const RankJob& job, RankObservation& observation, faults::Fired& fired) = 0;
};

// main() of a process of ranks, one for each of `fds`, their ends of sockets to the parent. Several
// are threads of it; then no job may end or stop the process. Returns the exit status.
int serve_ranks(const std::vector<int>& fds, RankProgram& program);

}  // namespace lockstep::properties
