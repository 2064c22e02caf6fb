// ProcessRanks: the ranks of a case as processes of their own, so that they can be killed and
// stopped for real. Each process is this program, started as `rank-server`, or comes from
// the nursery of the one that the subject names (Subject::rank_program), and serves one rank of
// case after case until it is killed. From a nursery ranks may also come as threads of one process
// (run_as_threads()), for cases in which no rank is killed or stopped.
//
// The parent hands out the case, decides the meetings, wakes stopped ranks up again, and gathers
// what the ranks observed. Threads: one caller. Failure: a rank that crashes, or ranks that give no
// answer, are in the Observation.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "properties/lane/lane.h"
#include "properties/lane/meeting.h"
#include "properties/lane/rank_fork_server.h"
#include "properties/lane/rank_server.h"

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
  // The next case has processes of its own.
  void end_all();

 private:
  class Run;
  struct Process {
    pid_t pid = -1;
    int fd = -1;
  };
  // One process a rank, by rank; or one and the same for all.
  using Processes = std::vector<Process>;
  Status start(Processes& processes, std::uint32_t first, std::uint32_t count);
  // Kills the rank's process, unless it ends by itself within `patience`; says how it ended.
  static std::string end(Processes& processes, std::uint32_t rank,
                         std::chrono::milliseconds patience = {});

  const Subject subject_;
  const LaneKind lane_;
  RankForkServer nursery_;  // of the subject's rank program, if it names one
  Processes processes_;
  Processes threads_;
};

// Runs the rank on the variant of the reducer that the subject asks for.
void run_rank(const Subject& subject, const RankJob& job, RankObservation& observation,
              faults::Fired& fired);

// main() of a rank's process that this program is (rank_server.h).
int serve_ranks(int fd);

}  // namespace lockstep::properties
