// RankRun: one case on ranks that are processes, wherever these run. It hands out the case, decides
// the meetings, continues stopped ranks, and collects what the ranks observed. RankLines are the
// connections to the ranks: to processes of this machine (process_ranks.h), or to machines of their
// own (host_ranks.h).
//
// Threads: one caller. Failure: the Observation reports ranks that crash or do not answer.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "properties/case/case.h"
#include "properties/lane/lane.h"
#include "properties/observe/observation.h"
#include "properties/subject/subject.h"

namespace lockstep::properties {

class RankLines {
 public:
  virtual ~RankLines() = default;

  // A store for one case: a folder, or tcp://HOST:PORT/GENERATION. remove_store() ends the last.
  virtual Result<std::string> make_store() = 0;
  virtual void remove_store() = 0;
  // Where the other ranks reach this one; empty: on the loopback interface.
  virtual std::string address(std::uint32_t rank) const = 0;

  // Starts the rank's process, unless it runs. kPeerLost says that what starts it has crashed.
  virtual Status start(std::uint32_t rank) = 0;
  // Ranks may keep what they have in common, such as connections, from one run to the next, as long
  // as this name stays. It is another one if other ranks ran, or if a run did not end well.
  virtual std::string group_name() const { return {}; }
  // Whence the rank's messages (rank_server.h) are received.
  virtual int fd(std::uint32_t rank) const = 0;
  // Both return false if the rank is gone.
  virtual bool send_request(std::uint32_t rank, const std::string& text) = 0;
  virtual bool send_answer(std::uint32_t rank, const std::string& text) = 0;
  // Continues a rank that has announced that it stops. Returns false if it has not stopped yet.
  virtual bool resume(std::uint32_t rank) = 0;
  // Kills the rank's process, unless it ends by itself within `patience`. Returns in words how it
  // ended.
  virtual std::string end(std::uint32_t rank, std::chrono::milliseconds patience) = 0;
  // After end(): why the process was ended from outside (process_end.h), if the lines can tell.
  virtual std::string cause_outside() const { return {}; }

  // Called again and again while ranks run.
  virtual void watch() {}

  // Faults of the store begin; their rank has announced that it stops, and goes on then.
  virtual void begin_store_faults(std::uint32_t rank, const std::vector<faults::Fault>& faults) {
    (void)rank;
    (void)faults;
  }
  // Whether the process of a rank has ended because of a fault on its host.
  virtual bool has_ended_by_fault(std::uint32_t rank, Observation& observation) {
    (void)rank;
    (void)observation;
    return false;
  }
  // Ends the faults that have begun on the rank's host, or in the store, and notes which have
  // acted. Called when the ranks recover, and after the case. The rank waits then, or has ended.
  virtual void end_host_faults(std::uint32_t rank, Observation& observation) {
    (void)rank;
    (void)observation;
  }
  virtual void end_store_faults(Observation& observation) { (void)observation; }
};

struct RankRunOptions {
  LaneKind lane = LaneKind::kGloo;
  const Subject* subject = nullptr;
  std::string net_plan;  // see RankJob
};

void run_ranks(RankLines& lines, const RankRunOptions& options, const Case& c,
               Observation& observation);

}  // namespace lockstep::properties
