#include "properties/lane/process_ranks.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "properties/case/case_json.h"
#include "properties/lane/needs.h"
#include "properties/lane/rank_json.h"
#include "properties/lane/rank_server.h"
#include "properties/lane/time_limit.h"
#include "properties/process/message.h"
#include "properties/process/process_end.h"
#include "reducer/base/check.h"

namespace lockstep::properties {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kMessageLimit = std::chrono::seconds(10);
constexpr auto kEndLimit = std::chrono::milliseconds(500);  // of a rank that has hung up

}  // namespace

ProcessRanks::ProcessRanks(Subject subject, LaneKind lane)
    : subject_(std::move(subject)), lane_(lane), fork_server_(subject_.rank_program) {}

ProcessRanks::~ProcessRanks() { end_all(); }

void ProcessRanks::end_all() {
  for (Processes* processes : {&processes_, &threads_})
    for (std::uint32_t rank = 0; rank < processes->size(); ++rank) (void)end(*processes, rank);
}

// Starts one process for `count` ranks.
Status ProcessRanks::start(Processes& processes, std::uint32_t first, std::uint32_t count) {
  LOCKSTEP_CHECK(count == 1 || !subject_.rank_program.empty());
  std::vector<int> ours;
  std::vector<int> theirs;
  const auto close_all = [](const std::vector<int>& fds) {
    for (const int fd : fds) ::close(fd);
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    int fds[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
      close_all(ours);
      close_all(theirs);
      return refused_by_system("no socket for a rank's process can be made", errno);
    }
    ours.push_back(fds[0]);
    theirs.push_back(fds[1]);
  }
  const Result<pid_t> made = subject_.rank_program.empty()
                                 ? spawn_server("/proc/self/exe", "rank-server", theirs[0])
                                 : fork_server_.make(theirs);
  close_all(theirs);
  if (!made) {
    close_all(ours);
    return made.error();
  }
  for (std::uint32_t i = 0; i < count; ++i) processes[first + i] = {*made, ours[i]};
  return {};
}

std::string ProcessRanks::end(Processes& processes, std::uint32_t rank,
                              std::chrono::milliseconds patience) {
  const pid_t pid = processes[rank].pid;
  if (pid < 0) return {};
  const std::optional<int> status = end_within(pid, patience);
  for (Process& process : processes) {
    if (process.pid != pid) continue;
    ::close(process.fd);
    process = {};
  }
  return status ? describe_end(*status) : "closed its connection and went on, and was killed";
}

// The run of one case.
class ProcessRanks::Run {
 public:
  Run(ProcessRanks& owner, Processes& processes, const Case& c, Observation& observation,
      const std::string& net_plan)
      : owner_(owner),
        processes_(processes),
        case_(c),
        net_plan_(net_plan),
        observation_(observation),
        meeting_(c.program.world),
        waiting_(c.program.world),
        running_(c.program.world, true),
        stopped_(c.program.world),
        wake_at_(c.program.world) {
    observation.ranks.resize(c.program.world);
  }

  void run() {
    std::string directory = (std::filesystem::temp_directory_path() / "lockstep-XXXXXX").string();
    if (::mkdtemp(directory.data()) == nullptr)
      return give_up(Observation::End::kNotRun,
                     refused_by_system("no folder can be made for the store of the ranks", errno)
                         .failure()
                         .detail);
    hand_out(directory);
    limit_ = run_limit(owner_.lane_, owner_.subject_, case_);
    const Clock::time_point limit = Clock::now() + limit_;
    while (is_running() && observation_.end == Observation::End::kFinished) {
      if (Clock::now() >= limit) give_up(Observation::End::kHung, describe_missing());
      step();
    }
    observation_.recoveries = meeting_.recoveries();
    std::error_code ignored;
    std::filesystem::remove_all(directory, ignored);
  }

 private:
  bool is_running() const {
    return std::find(running_.begin(), running_.end(), true) != running_.end();
  }

  void hand_out(const std::string& directory) {
    const std::string text = to_json(case_);
    for (std::uint32_t rank = 0; rank < case_.program.world; ++rank) {
      const Process& process = processes_[rank];
      const RankRequest job = {text,
                               rank,
                               directory,
                               owner_.subject_.name(),
                               observation_.detailed,
                               owner_.lane_ == LaneKind::kNccl,
                               net_plan_};
      if (process.pid < 0)
        if (const Status status = start(rank); !status.ok())
          return give_up(status.code() == Code::kPeerLost ? Observation::End::kCrashed
                                                          : Observation::End::kNotRun,
                         status.failure().detail);
      if (!send_message(process.fd, to_text(job), kMessageLimit)) return crashed(rank);
    }
  }

  // One process runs the ranks as threads, and so starts them all at once.
  Status start(std::uint32_t rank) {
    if (&processes_ == &owner_.processes_) return owner_.start(processes_, rank, 1);
    LOCKSTEP_CHECK_EQ(rank, 0u);
    return owner_.start(processes_, 0, static_cast<std::uint32_t>(processes_.size()));
  }

  void step() {
    std::vector<pollfd> entries;
    std::vector<std::uint32_t> owners;
    for (std::uint32_t rank = 0; rank < running_.size(); ++rank) {
      if (!running_[rank]) continue;
      entries.push_back({processes_[rank].fd, POLLIN, 0});
      owners.push_back(rank);
    }
    wake_stopped();
    wake_paused();
    if (::poll(entries.data(), entries.size(), 2) <= 0) return;
    for (std::size_t i = 0; i < entries.size() && observation_.end == Observation::End::kFinished;
         ++i)
      if (entries[i].revents != 0) hear(owners[i]);
  }

  // Continues ranks that are stopped permanently, once no other rank has work left.
  void wake_stopped() {
    for (std::uint32_t rank = 0; rank < running_.size(); ++rank)
      if (running_[rank] && !waiting_[rank] && !stopped_[rank]) return;
    for (std::uint32_t rank = 0; rank < running_.size(); ++rank)
      if (stopped_[rank]) wake_at_[rank] = Clock::now();
    stopped_.assign(stopped_.size(), false);
  }

  void wake_paused() {
    for (std::uint32_t rank = 0; rank < wake_at_.size(); ++rank) {
      if (wake_at_[rank] == Clock::time_point() || Clock::now() < wake_at_[rank]) continue;
      // A rank may have ended while it was stopped. kill(-1) would signal every process of the
      // machine.
      if (const pid_t pid = processes_[rank].pid; pid > 0) {
        siginfo_t stop{};
        const bool is_child =
            ::waitid(P_PID, static_cast<id_t>(pid), &stop, WSTOPPED | WNOHANG) == 0;
        if (is_child && stop.si_pid == 0)
          continue;  // it announced its stop, and has not stopped yet
        ::kill(pid, SIGCONT);
      }
      wake_at_[rank] = {};
    }
  }

  void hear(std::uint32_t rank) {
    std::string text;
    const Process& process = processes_[rank];
    const Receive got = receive_message(process.fd, text, kMessageLimit);
    if (got == Receive::kClosed) return crashed(rank);
    if (got != Receive::kMessage || text.empty()) return sent_nonsense(rank);
    const std::string body = text.substr(1);
    switch (text[0]) {
      case kMeet: {
        const std::optional<Arrival> arrival = arrival_from(body);
        if (!arrival) return sent_nonsense(rank);
        meeting_.arrive(rank, arrival->finished, arrival->next_step);
        waiting_[rank] = true;
        return decide();
      }
      case kPause: {
        std::uint32_t duration_us = 0;
        const auto read = std::from_chars(body.data(), body.data() + body.size(), duration_us);
        if (read.ec != std::errc()) return sent_nonsense(rank);
        wake_at_[rank] = Clock::now() + std::chrono::microseconds(duration_us);
        return;
      }
      case kStop:
        stopped_[rank] = true;
        return;
      case kExit:
        return exited(rank, body);
      case kDone:
        return done(rank, body);
      default:
        return sent_nonsense(rank);
    }
  }

  void decide() {
    const std::optional<Resume> resume = meeting_.decide();
    if (!resume) return;
    const std::string text = to_text(*resume);
    for (const std::uint32_t rank : resume->roster.members) {
      waiting_[rank] = false;
      if (!send_message(processes_[rank].fd, text, kMessageLimit)) return crashed(rank);
    }
  }

  // Handles a planned exit: the process has announced it, and kills itself.
  void exited(std::uint32_t rank, const std::string& bytes) {
    RankObservation seen;
    gather(rank, bytes, seen);
    observation_.ranks[rank].exited = true;
    (void)ProcessRanks::end(processes_, rank);
    leave(rank);
  }

  void done(std::uint32_t rank, const std::string& bytes) {
    gather(rank, bytes, observation_.ranks[rank]);
    observation_.leaked_bytes += observation_.ranks[rank].leaked_bytes;
    leave(rank);
  }

  void gather(std::uint32_t rank, const std::string& bytes, RankObservation& seen) {
    faults::Fired fired;
    if (!from_bytes(bytes, seen, fired)) return sent_nonsense(rank);
    observation_.fired.add_counts(fired);
    observation_.planted += seen.planted;
  }

  void leave(std::uint32_t rank) {
    running_[rank] = false;
    meeting_.leave(rank);
    decide();
  }

  void crashed(std::uint32_t rank) {
    const std::string how = ProcessRanks::end(processes_, rank, kEndLimit);
    give_up(Observation::End::kCrashed, fmt::format("rank {} {}", rank, how));
  }

  void sent_nonsense(std::uint32_t rank) {
    give_up(Observation::End::kCrashed,
            fmt::format("rank {} sent what is no message of ours: something in it wrote to a "
                        "descriptor that is not the subject's",
                        rank));
  }

  void give_up(Observation::End end, const std::string& why) {
    observation_.end = end;
    observation_.wait_graph = why;
    for (std::uint32_t rank = 0; rank < processes_.size(); ++rank)
      (void)ProcessRanks::end(processes_, rank);
  }

  std::string describe_missing() const {
    std::string out = fmt::format("{} s are over;", static_cast<double>(limit_.count()) / 1000);
    for (std::uint32_t rank = 0; rank < running_.size(); ++rank)
      out += fmt::format(" rank {} {};", rank,
                         !running_[rank]  ? "is done"
                         : waiting_[rank] ? "waits for the others"
                                          : "is running");
    return out;
  }

  ProcessRanks& owner_;
  Processes& processes_;
  const Case& case_;
  const std::string net_plan_;
  Observation& observation_;
  std::chrono::milliseconds limit_{0};  // for the whole case
  Meeting meeting_;
  std::vector<bool> waiting_;
  std::vector<bool> running_;
  std::vector<bool> stopped_;
  std::vector<Clock::time_point> wake_at_;
};

void ProcessRanks::run(const Case& c, Observation& observation, const std::string& net_plan) {
  if (processes_.size() < c.program.world) processes_.resize(c.program.world);
  Run(*this, processes_, c, observation, net_plan).run();
}

void ProcessRanks::run_as_threads(const Case& c, Observation& observation) {
  constexpr std::size_t kUsualRanks = 8;  // almost all cases have at most this many ranks
  const std::size_t ranks = std::max<std::size_t>(kUsualRanks, c.program.world);
  if (threads_.size() < ranks) {
    if (!threads_.empty()) (void)end(threads_, 0);
    threads_.resize(ranks);
  }
  Run(*this, threads_, c, observation, "").run();
}

}  // namespace lockstep::properties
