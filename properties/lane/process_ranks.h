// ProcessRanks: runs the ranks of a case as processes, so that they can really be killed and
// stopped. Each process is this program, started as `rank-server`, or comes from the fork server of
// the program that the subject names (Subject::rank_program). It serves one rank of case after case
// until it is killed. With a fork server, ranks can also be threads of one process
// (run_as_threads()), for cases in which no rank is killed or stopped.
//
// A RankRun (rank_run.h) drives them. Threads: one caller. Failure: the Observation reports ranks
// that crash or do not answer.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "properties/lane/lane.h"
#include "properties/lane/rank_fork_server.h"
#include "properties/lane/rank_server.h"
#include "properties/observe/meeting.h"

namespace lockstep::properties {

class ProcessRanks {
 public:
  // `lane`: gloo or nccl.
  explicit ProcessRanks(Subject subject, LaneKind lane = LaneKind::kGloo);
  ~ProcessRanks();
  ProcessRanks(const ProcessRanks&) = delete;
  ProcessRanks& operator=(const ProcessRanks&) = delete;

  // `net_plan`: see RankJob.
  void run(const Case& c, Observation& observation, const std::string& net_plan = "");
  void run_as_threads(const Case& c, Observation& observation);
  // After this, the next case starts new processes.
  void end_all();
  // See Lane. Measured over NCCL alone.
  bool was_starved() const { return was_starved_; }

 private:
  class Lines;
  struct Process {
    pid_t pid = -1;
    int fd = -1;
  };
  // One process per rank, by rank; or the same process for all ranks.
  using Processes = std::vector<Process>;
  Status start(Processes& processes, std::uint32_t first, std::uint32_t count);
  // Kills the rank's process, unless it ends by itself within `patience`. Returns in words how it
  // ended.
  std::string end(Processes& processes, std::uint32_t rank,
                  std::chrono::milliseconds patience = {});

  const Subject subject_;
  const LaneKind lane_;
  RankForkServer fork_server_;  // for the subject's rank program, if it names one
  Processes processes_;
  Processes threads_;
  bool was_starved_ = false;   // in the last run
  std::string cause_outside_;  // of the end of the last process that was ended
  // RankLines::group_name(): of the ranks of the last run if it ended well; otherwise of none.
  std::uint64_t group_ = 0;
  std::uint32_t group_world_ = 0;
};

// Runs the rank on the build of the reducer that the subject selects.
void run_rank(const Subject& subject, const RankJob& job, RankObservation& observation,
              faults::Fired& fired);

// main() of a rank's process, if that process is this program (rank_server.h).
int serve_ranks(int fd);

}  // namespace lockstep::properties
