#include "properties/lane/process_ranks.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <deque>
#include <filesystem>

#include "properties/lane/rank_run.h"
#include "properties/lane/rank_server.h"
#include "properties/process/message.h"
#include "properties/process/process_end.h"
#include "properties/process/processor_time.h"
#include "properties/process/system_error.h"
#include "reducer/base/check.h"

namespace lockstep::properties {
namespace {

constexpr auto kMessageLimit = std::chrono::seconds(10);

bool ended_well(const Observation& observation) {
  const auto is_well = [](const RankObservation& rank) {
    return rank.finished && std::all_of(rank.steps.begin(), rank.steps.end(),
                                        [](const auto& step) { return step.status.ok(); });
  };
  return observation.end == Observation::End::kFinished && observation.recoveries.empty() &&
         std::all_of(observation.ranks.begin(), observation.ranks.end(), is_well);
}

}  // namespace

ProcessRanks::ProcessRanks(Subject subject, LaneKind lane)
    : subject_(std::move(subject)),
      lane_(lane),
      fork_server_(subject_.rank_program, subject_.rank_arguments) {}

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
                                 ? spawn_server("/proc/self/exe", {}, "rank-server", theirs[0])
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
  const bool is_ours =
      subject_.kind == Subject::Kind::kProduction || subject_.kind == Subject::Kind::kSeeded;
  cause_outside_ = status ? properties::cause_outside(*status, !is_ours) : "";
  return status ? describe_end(*status) : "closed its connection and went on, and was killed";
}

// The lines to the processes of one machine.
class ProcessRanks::Lines final : public RankLines {
 public:
  Lines(ProcessRanks& owner, Processes& processes) : owner_(owner), processes_(processes) {}

  Result<std::string> make_store() override {
    directory_ = (std::filesystem::temp_directory_path() / "lockstep-XXXXXX").string();
    if (::mkdtemp(directory_.data()) != nullptr) return directory_;
    return failed(refused_by_system("no folder can be made for the store of the ranks", errno));
  }
  void remove_store() override {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  std::string address(std::uint32_t) const override { return {}; }

  // One process runs the ranks as threads, and so starts them all at once.
  Status start(std::uint32_t rank) override {
    if (processes_[rank].pid >= 0) return {};
    if (&processes_ == &owner_.processes_) return owner_.start(processes_, rank, 1);
    LOCKSTEP_CHECK_EQ(rank, 0u);
    return owner_.start(processes_, 0, static_cast<std::uint32_t>(processes_.size()));
  }

  std::string group_name() const override { return std::to_string(owner_.group_); }
  int fd(std::uint32_t rank) const override { return processes_[rank].fd; }
  bool send_request(std::uint32_t rank, const std::string& text) override {
    if (owner_.lane_ == LaneKind::kNccl)
      clocks_.emplace_back(fmt::format("/proc/{}/task", processes_[rank].pid));
    return send_message(processes_[rank].fd, text, kMessageLimit);
  }
  bool send_answer(std::uint32_t rank, const std::string& text) override {
    return send_message(processes_[rank].fd, text, kMessageLimit);
  }

  // A rank may have ended while it was stopped. kill(-1) would signal every process of the machine.
  bool resume(std::uint32_t rank) override {
    const pid_t pid = processes_[rank].pid;
    if (pid <= 0) return true;
    siginfo_t stop{};
    const bool is_child = ::waitid(P_PID, static_cast<id_t>(pid), &stop, WSTOPPED | WNOHANG) == 0;
    if (is_child && stop.si_pid == 0) return false;
    ::kill(pid, SIGCONT);
    return true;
  }

  std::string end(std::uint32_t rank, std::chrono::milliseconds patience) override {
    return owner_.end(processes_, rank, patience);
  }
  std::string cause_outside() const override { return owner_.cause_outside_; }

  void watch() override {
    constexpr auto kInterval = std::chrono::milliseconds(500);
    if (Clock::now() < next_sample_) return;
    next_sample_ = Clock::now() + kInterval;
    for (ProcessorClock& each : clocks_) each.sample();
  }
  bool were_starved() const {
    return std::any_of(clocks_.begin(), clocks_.end(),
                       [](const ProcessorClock& each) { return is_starved(each.time()); });
  }

 private:
  using Clock = std::chrono::steady_clock;

  ProcessRanks& owner_;
  Processes& processes_;
  std::string directory_;
  std::deque<ProcessorClock> clocks_;  // of the ranks, over NCCL
  Clock::time_point next_sample_;
};

void ProcessRanks::run(const Case& c, Observation& observation, const std::string& net_plan) {
  if (processes_.size() < c.program.world) processes_.resize(c.program.world);
  // Ranks that another run has left out keep a group that is none any more.
  if (group_world_ != c.program.world) ++group_;
  group_world_ = c.program.world;
  Lines lines(*this, processes_);
  run_ranks(lines, {lane_, &subject_, net_plan}, c, observation);
  if (!ended_well(observation)) group_world_ = 0;
  was_starved_ = lines.were_starved();
}

void ProcessRanks::run_as_threads(const Case& c, Observation& observation) {
  constexpr std::size_t kUsualRanks = 8;  // almost all cases have at most this many ranks
  const std::size_t ranks = std::max<std::size_t>(kUsualRanks, c.program.world);
  if (threads_.size() < ranks) {
    if (!threads_.empty()) (void)end(threads_, 0);
    threads_.resize(ranks);
  }
  Lines lines(*this, threads_);
  run_ranks(lines, {lane_, &subject_, ""}, c, observation);
}

}  // namespace lockstep::properties
