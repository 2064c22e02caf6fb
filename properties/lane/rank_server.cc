#include "properties/lane/rank_server.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "properties/case/case_json.h"
#include "properties/lane/rank_json.h"
#include "properties/process/message.h"
#include "properties/process/processor_time.h"

namespace lockstep::properties {
namespace {

class RankServer {
 public:
  RankServer(int fd, RankProgram& program, bool is_thread)
      : fd_(fd), program_(program), is_thread_(is_thread) {}

  int serve() {
    std::string text;
    while (receive_message(fd_, text, std::nullopt) == Receive::kMessage) {
      // This must not come earlier: a rank from a fork server (rank_fork_server.h) gets its final
      // parent only shortly before.
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (!run(rank_request_from(text))) return 1;
    }
    return 0;
  }

 private:
  bool run(const RankRequest& request) {
    const Result<Case> c = from_json(request.case_text, "request");
    if (!c || !program_.load(request.subject).ok()) return false;
    const Expected expectation = expectation_of(*c, program_.profile());
    observation_ = RankObservation();
    RankJob job;
    job.c = &*c;
    job.expectation = &expectation;
    job.rank = request.rank;
    job.directory = request.directory;
    job.address = request.address;
    job.detailed = request.detailed;
    job.is_nccl = request.is_nccl;
    job.net_plan = request.net_plan;
    job.is_thread = is_thread_;
    job.meet = [this](bool finished, std::uint32_t next_step) { return meet(finished, next_step); };
    job.exit_process = [this](const faults::Fired& fired) { exit_process(fired); };
    job.pause_process = [this](std::uint32_t duration_us) {
      send_message(fd_, kPause + std::to_string(duration_us));
      ::raise(SIGSTOP);
    };
    if (!request.address.empty())
      job.begin_host_faults = [this](const std::vector<faults::Fault>& faults) {
        send_message(fd_, kFaults + to_text(faults));
        ::raise(SIGSTOP);
      };
    job.leave_group = [this, &job](bool is_cut_off, std::uint32_t duration_us) {
      leave_group(job, is_cut_off, duration_us);
    };
    job.joining = request.joining;
    job.stop_process = [this] {
      send_message(fd_, std::string(1, kStop));
      ::raise(SIGSTOP);
    };
    faults::Fired fired;
    ProcessorClock clock("/proc/self/task");
    program_.run(job, observation_, fired);
    clock.sample();
    observation_.waited_s = clock.longest_wait_s();
    return send_message(fd_, kDone + to_bytes(observation_, fired));
  }

  Resume meet(bool finished, std::uint32_t next_step) {
    send_message(fd_, kMeet + to_text(Arrival{finished, next_step}));
    std::string text;
    if (receive_message(fd_, text, std::nullopt) != Receive::kMessage) ::_exit(1);
    return resume_from(text);
  }

  // A rank that is cut off goes on, and one that is not is stopped.
  void leave_group(const RankJob& job, bool is_cut_off, std::uint32_t duration_us) {
    const bool has_network = job.begin_host_faults != nullptr;
    const bool stops = !is_cut_off || !has_network;
    if (!stops)
      job.begin_host_faults({{faults::Kind::kRankLeftOut, job.rank, 0, 0, duration_us, job.rank}});
    send_message(fd_, kLeave + (stops ? std::to_string(duration_us) : std::string(kGoesOn)));
    if (stops) ::raise(SIGSTOP);
  }

  // Ends the process as a loss of power does: nothing is unwound, and the peers get no message.
  // `fired` includes this exit and what fired before it.
  [[noreturn]] void exit_process(const faults::Fired& fired) {
    send_message(fd_, kExit + to_bytes(RankObservation(), fired));
    ::raise(SIGKILL);
    ::_exit(1);
  }

  const int fd_;
  RankProgram& program_;
  const bool is_thread_;
  RankObservation observation_;
};

}  // namespace

int serve_ranks(const std::vector<int>& fds, RankProgram& program) {
  if (fds.size() == 1) return RankServer(fds[0], program, false).serve();
  std::atomic<int> status = 0;
  std::vector<std::thread> threads;
  for (const int fd : fds)
    threads.emplace_back([&program, &status, fd] {
      const int ended = RankServer(fd, program, true).serve();
      ::close(fd);
      if (ended != 0) status = ended;
    });
  for (std::thread& thread : threads) thread.join();
  return status;
}

}  // namespace lockstep::properties
