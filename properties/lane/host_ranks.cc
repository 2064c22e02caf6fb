#include "properties/lane/host_ranks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "properties/case/case_json.h"
#include "properties/hosts/command.h"
#include "properties/hosts/namespaces.h"
#include "properties/hosts/network_faults.h"
#include "properties/lane/rank_host.h"
#include "properties/process/message.h"
#include "properties/process/process_end.h"
#include "properties/process/shell_word.h"
#include "properties/process/system_error.h"
#include "properties/process/terminal.h"
#include "reducer/base/check.h"

extern char** environ;

namespace lockstep::properties {
namespace {

using hosts::Clock;
using std::chrono::milliseconds;

constexpr auto kMessageLimit = std::chrono::seconds(10);
constexpr auto kHostLimit = std::chrono::seconds(30);  // until a host has connected, or answers
constexpr auto kByHandLimit = std::chrono::seconds(300);
constexpr int kNetworkFd = 4;  // of a rank's host
constexpr int kSecretFd = 5;
constexpr std::size_t kMostHostsBytes = std::size_t{1} << 20;

struct Chosen {
  HostsOptions options;
  std::vector<Host> hosts;
};
Chosen& chosen() {
  static Chosen hosts;
  return hosts;
}

// Moves a descriptor above kNetworkFd and kSecretFd. Starting a host puts two descriptors there,
// one after the other; the first must not take the place of the second. Returns -1 if that fails.
int move_above_host_fds(int fd) {
  if (fd < 0) return fd;
  const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, kSecretFd + 1);
  const int error = errno;
  ::close(fd);
  errno = error;
  return moved;
}

// A secret of this run alone, in a file without a name that the ranks' hosts inherit.
Result<int> make_secret_file() {
  const Result<hosts::Nonce> bytes = hosts::draw_nonce();
  if (!bytes) return failed(bytes.error());
  std::string text;
  for (const char byte : *bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  const int fd = move_above_host_fds(::memfd_create("lockstep-secret", MFD_CLOEXEC));
  if (fd >= 0 && ::fchmod(fd, S_IRUSR | S_IWUSR) == 0 &&
      ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()))
    return fd;
  return failed(refused_by_system("no file for the secret of the ranks can be made", errno));
}

std::string fd_file(int fd) { return fmt::format("/proc/self/fd/{}", fd); }

// Returns what this machine lacks to carry out the faults of the case, or nothing. Without its
// fault a case would pass, which says nothing about the subject.
std::string lacks_for(const faults::FaultPlan& plan) {
  if (chosen().options.namespaces == 0 || !hosts::find_program("nft").empty()) return {};
  for (const faults::Fault& each : plan.faults)
    if (hosts::needs_nft(each.kind))
      return fmt::format(
          "the fault {} needs nft, which is not installed: ci/setup --network installs it",
          faults::name_of(each.kind));
  return {};
}

}  // namespace

Result<std::vector<Host>> read_hosts(const std::string& file) {
  const auto wrong = [&](const std::string& what) {
    return failed(Status(Code::kInvalidArgument, fmt::format("--hosts {}: {}", file, what)));
  };
  const Result<std::string> text = read_file(file, kMostHostsBytes);
  if (!text) return wrong(text.error().failure().detail);
  std::istringstream in(*text);
  std::vector<Host> found;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    std::istringstream words(line);
    Host host;
    if (!(words >> host.address) || host.address[0] == '#') continue;
    for (std::string word; words >> word;) host.command.push_back(word);
    if (const Status status = hosts::check_host(host.address); !status.ok())
      return wrong(fmt::format("line {}: {}", number, status.failure().detail));
    found.push_back(std::move(host));
  }
  if (found.empty()) return wrong("it names no host; write a line ADDRESS COMMAND for each");
  if (found.size() > hosts::kMostHosts)
    return wrong(fmt::format("it names {} hosts: {} at most", found.size(), hosts::kMostHosts));
  return found;
}

Status choose_hosts(const HostsOptions& options) {
  Chosen& now = chosen();
  now = {options, {}};
  if (options.namespaces > 0) {
    for (std::uint32_t host = 0; host < options.namespaces; ++host)
      now.hosts.push_back({hosts::data_address(host), {}});
    return hosts::try_namespaces();
  }
  auto found = read_hosts(options.hosts_file);
  if (!found) return found.error();
  const auto address = hosts::read_address(options.listen);
  if (!address) return address.error();
  if (const auto secret = hosts::Secret::read(options.secret_file); !secret) return secret.error();
  now.hosts = std::move(*found);
  return {};
}

std::uint32_t host_count() { return static_cast<std::uint32_t>(chosen().hosts.size()); }

bool can_disturb_network() {
  return chosen().options.namespaces > 0 && !hosts::find_program("nft").empty();
}

// The lines to the hosts, from one case to the next.
class HostRanks::Lines final : public RankLines {
 public:
  static Result<std::unique_ptr<Lines>> open();
  ~Lines() override;

  void begin_case(const Case& c);
  void note_unfired(const Case& c, Observation& observation) const;

  Result<std::string> make_store() override {
    const std::uint64_t generation = controller_->begin_generation();
    return fmt::format("{}/{}", controller_->address().to_string(), generation);
  }
  void remove_store() override { (void)controller_->begin_generation(); }
  std::string address(std::uint32_t rank) const override { return chosen().hosts[rank].address; }
  Status start(std::uint32_t rank) override;
  int fd(std::uint32_t rank) const override { return remotes_[rank].line.fd(); }
  bool send_request(std::uint32_t rank, const std::string& text) override {
    return tell(rank, kRequest, text);
  }
  bool send_answer(std::uint32_t rank, const std::string& text) override {
    return tell(rank, kToRank, text);
  }
  bool resume(std::uint32_t rank) override {
    (void)tell(rank, kContinue, {});
    return true;
  }
  std::string end(std::uint32_t rank, milliseconds patience) override;
  void watch() override {
    for (hosts::FaultReport& each : controller_->end_faults_due())
      of_store_.push_back(std::move(each));
  }
  void begin_store_faults(std::uint32_t rank, const std::vector<faults::Fault>& faults) override;
  bool has_ended_by_fault(std::uint32_t rank, Observation& observation) override;
  void end_host_faults(std::uint32_t rank, Observation& observation) override;
  void end_store_faults(Observation& observation) override;

 private:
  struct Remote {
    hosts::Line line;
    pid_t pid = -1;  // of what started it
  };
  Lines(std::unique_ptr<hosts::Controller> controller, int secret_fd)
      : controller_(std::move(controller)), secret_fd_(secret_fd), remotes_(host_count()) {}

  bool is_in_namespaces() const { return chosen().options.namespaces > 0; }
  bool tell(std::uint32_t rank, char kind, const std::string& text) {
    return fd(rank) >= 0 && send_message(fd(rank), kind + text, kMessageLimit);
  }
  // Asks the host, and drops what the rank said before. Nothing if the host is lost.
  std::optional<std::string> ask(std::uint32_t rank, char kind, const std::string& text,
                                 char answer);
  Status start_namespace(std::uint32_t rank);
  Status start_by_command(std::uint32_t rank);
  std::vector<std::string> command_of(std::uint32_t rank, const std::string& program,
                                      const std::string& secret) const;
  Status spawn(std::uint32_t rank, std::vector<std::string> arguments,
               const posix_spawn_file_actions_t* actions);
  void lose(std::uint32_t rank);
  void note(const hosts::FaultReport& report, Observation& observation);

  std::unique_ptr<hosts::Controller> controller_;
  int secret_fd_ = -1;
  std::vector<Remote> remotes_;
  bool has_host_faults_ = false;              // this case
  std::vector<hosts::FaultReport> of_store_;  // of faults that have ended by themselves
  std::array<std::uint64_t, faults::kKinds> begun_{};
};

Result<std::unique_ptr<HostRanks::Lines>> HostRanks::Lines::open() {
  const HostsOptions& options = chosen().options;
  hosts::Address address{hosts::controller_address(), 0};
  std::string secret_file = options.secret_file;
  int secret_fd = -1;
  if (options.namespaces > 0) {
    if (const Status status = hosts::enter_hub(); !status.ok()) return failed(status);
  } else {
    address = *hosts::read_address(options.listen);
  }
  if (secret_file.empty()) {
    const Result<int> made = make_secret_file();
    if (!made) return failed(made.error());
    secret_fd = *made;
    secret_file = fd_file(secret_fd);
  }
  Result<hosts::Secret> secret = hosts::Secret::read(secret_file);
  if (!secret) return failed(secret.error());
  auto controller =
      hosts::Controller::listen(std::move(address), std::move(*secret),
                                [](const std::string& line) { remark("the controller " + line); });
  if (!controller) return failed(controller.error());
  (*controller)->expect_ranks(host_count());
  return std::unique_ptr<Lines>(new Lines(std::move(*controller), secret_fd));
}

HostRanks::Lines::~Lines() {
  for (std::uint32_t rank = 0; rank < remotes_.size(); ++rank) lose(rank);
  if (secret_fd_ >= 0) ::close(secret_fd_);
}

void HostRanks::Lines::begin_case(const Case& c) {
  begun_.fill(0);
  of_store_.clear();
  has_host_faults_ =
      std::any_of(c.faults.faults.begin(), c.faults.faults.end(), [](const faults::Fault& each) {
        return faults::is_of_host(each.kind) || each.kind == faults::Kind::kRankLeftOut;
      });
}

std::vector<std::string> HostRanks::Lines::command_of(std::uint32_t rank,
                                                      const std::string& program,
                                                      const std::string& secret) const {
  return {program,         "rank", "--store", controller_->address().to_string(),
          "--secret-file", secret, "--rank",  std::to_string(rank)};
}

Status HostRanks::Lines::spawn(std::uint32_t rank, std::vector<std::string> arguments,
                               const posix_spawn_file_actions_t* actions) {
  std::vector<char*> pointers;
  for (std::string& each : arguments) pointers.push_back(each.data());
  pointers.push_back(nullptr);
  const int error =
      ::posix_spawnp(&remotes_[rank].pid, pointers[0], actions, nullptr, pointers.data(), environ);
  if (error == 0) return {};
  remotes_[rank].pid = -1;
  return refused_by_system(
      fmt::format("the host of rank {} cannot be started with {}", rank, arguments[0]), error);
}

Status HostRanks::Lines::start_namespace(std::uint32_t rank) {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
    return refused_by_system("no socket for a rank's host can be made", errno);
  const hosts::Line mine(fds[0]);
  hosts::Line theirs(move_above_host_fds(fds[1]));
  if (theirs.fd() < 0) return refused_by_system("no socket for a rank's host can be made", errno);
  std::vector<std::string> arguments = command_of(
      rank, "/proc/self/exe", secret_fd_ >= 0 ? fd_file(kSecretFd) : chosen().options.secret_file);
  arguments.insert(arguments.end(), {"--network-fd", std::to_string(kNetworkFd)});
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, theirs.fd(), kNetworkFd);
  if (secret_fd_ >= 0) ::posix_spawn_file_actions_adddup2(&actions, secret_fd_, kSecretFd);
  const Status spawned = spawn(rank, std::move(arguments), &actions);
  ::posix_spawn_file_actions_destroy(&actions);
  LOCKSTEP_RETURN_IF_ERROR(spawned);
  theirs = hosts::Line();
  std::string told;
  if (receive_message(mine.fd(), told, kHostLimit) != Receive::kMessage)
    return {Code::kInternal, fmt::format("the host of rank {} ended before it began", rank)};
  if (!told.empty()) return {Code::kInternal, told};
  LOCKSTEP_RETURN_IF_ERROR(hosts::plug_in(remotes_[rank].pid, rank));
  if (send_message(mine.fd(), "go", kMessageLimit)) return {};
  return {Code::kInternal, fmt::format("the host of rank {} ended before it began", rank)};
}

Status HostRanks::Lines::start_by_command(std::uint32_t rank) {
  std::vector<std::string> arguments = chosen().hosts[rank].command;
  std::error_code error;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", error).string();
  const auto command = command_of(rank, program, chosen().options.secret_file);
  if (arguments.empty() || arguments[0] == "-") {
    remark(fmt::format("waiting for rank {}: {}", rank, command_line_of(command)));
    return {};
  }
  const bool is_for_shell = hands_to_shell(arguments[0]);
  for (const std::string& word : command)
    arguments.push_back(is_for_shell ? shell_word(word) : word);
  return spawn(rank, std::move(arguments), nullptr);
}

Status HostRanks::Lines::start(std::uint32_t rank) {
  Remote& remote = remotes_[rank];
  if (remote.line.fd() >= 0) return {};
  const Status started = is_in_namespaces() ? start_namespace(rank) : start_by_command(rank);
  if (!started.ok()) {
    lose(rank);
    return started;
  }
  Result<hosts::Line> line =
      controller_->take_rank(rank, Clock::now() + (remote.pid < 0 ? kByHandLimit : kHostLimit));
  if (!line) {
    const bool has_ended_early = remote.pid > 0 && has_ended(remote.pid);
    lose(rank);
    return {Code::kInternal, line.error().failure().detail +
                                 (has_ended_early ? ": the command of its host has ended" : "")};
  }
  remote.line = std::move(*line);
  return {};
}

// Whoever started it is ended, and another one can take its place.
void HostRanks::Lines::lose(std::uint32_t rank) {
  Remote& remote = remotes_[rank];
  remote.line = hosts::Line();
  if (remote.pid > 0) (void)end_within(remote.pid, milliseconds(0));
  remote.pid = -1;
  controller_->release_rank(rank);
  if (is_in_namespaces()) hosts::unplug(rank);
}

std::optional<std::string> HostRanks::Lines::ask(std::uint32_t rank, char kind,
                                                 const std::string& text, char answer) {
  std::string got;
  bool is_there = tell(rank, kind, text);
  while (is_there) {
    is_there = receive_message(fd(rank), got, kHostLimit) == Receive::kMessage && !got.empty();
    if (is_there && got[0] == answer) return got.substr(1);
  }
  return std::nullopt;
}

std::string HostRanks::Lines::end(std::uint32_t rank, milliseconds patience) {
  if (fd(rank) < 0) return {};
  if (auto how = ask(rank, kKill, std::to_string(patience.count()), kKilled)) return *how;
  lose(rank);
  return "was lost with its host";
}

void HostRanks::Lines::begin_store_faults(std::uint32_t rank,
                                          const std::vector<faults::Fault>& faults) {
  for (const faults::Fault& each : faults) controller_->begin_fault(each);
  (void)resume(rank);
}

// A rank that is left out counts when it leaves, and not here.
void HostRanks::Lines::note(const hosts::FaultReport& report, Observation& observation) {
  const auto kind = static_cast<std::size_t>(report.kind);
  if (kind >= begun_.size()) return;
  ++begun_[kind];
  if (report.acted == 0)
    observation.unfired.push_back(fmt::format("a planned fault, {}, did nothing: {}",
                                              faults::name_of(report.kind), report.why));
  else if (faults::is_of_host(report.kind))
    ++observation.fired.counts[kind];
}

void HostRanks::Lines::end_host_faults(std::uint32_t rank, Observation& observation) {
  if (!has_host_faults_ || fd(rank) < 0) return;
  const std::optional<std::string> text = ask(rank, kHeal, {}, kHealed);
  if (!text)
    return observation.unfired.push_back(
        fmt::format("the host of rank {} did not say what became of its faults", rank));
  const auto reports = nlohmann::json::parse(*text, nullptr, false);
  try {
    for (const auto& each : reports)
      note({static_cast<faults::Kind>(each.at(0).get<std::uint8_t>()), each.at(1), each.at(2)},
           observation);
  } catch (const nlohmann::json::exception&) {
    observation.unfired.push_back(fmt::format("the host of rank {} sent nonsense", rank));
  }
}

void HostRanks::Lines::end_store_faults(Observation& observation) {
  for (const hosts::FaultReport& each : controller_->end_faults()) note(each, observation);
  for (const hosts::FaultReport& each : std::exchange(of_store_, {})) note(each, observation);
}

bool HostRanks::Lines::has_ended_by_fault(std::uint32_t rank, Observation& observation) {
  std::uint64_t& count =
      observation.fired.counts[static_cast<std::size_t>(faults::Kind::kNodeMemory)];
  const std::uint64_t before = count;
  end_host_faults(rank, observation);
  return count > before;
}

void HostRanks::Lines::note_unfired(const Case& c, Observation& observation) const {
  std::array<std::uint64_t, faults::kKinds> planned{};
  for (const faults::Fault& each : c.faults.faults)
    if (faults::is_of_host(each.kind)) ++planned[static_cast<std::size_t>(each.kind)];
  for (std::size_t kind = 0; kind < planned.size(); ++kind)
    if (planned[kind] > begun_[kind])
      observation.unfired.push_back(
          fmt::format("a planned fault, {}, did nothing: its rank did not come to that collective",
                      faults::name_of(static_cast<faults::Kind>(kind))));
}

HostRanks::HostRanks(Subject subject) : subject_(std::move(subject)) {}
HostRanks::~HostRanks() = default;

void HostRanks::run(const Case& c, Observation& observation) {
  const auto refuse = [&](const std::string& why) {
    observation.end = Observation::End::kNotRun;
    observation.wait_graph = why;
    observation.ranks.resize(c.program.world);
  };
  if (c.program.world > host_count())
    return refuse(fmt::format("the case has {} ranks, and the lane has {} hosts", c.program.world,
                              host_count()));
  if (const std::string lacking = lacks_for(c.faults); !lacking.empty()) return refuse(lacking);
  if (!lines_) {
    auto opened = Lines::open();
    if (!opened) return refuse(opened.error().failure().detail);
    lines_ = std::move(*opened);
  }
  lines_->begin_case(c);
  run_ranks(*lines_, {LaneKind::kHosts, &subject_, ""}, c, observation);
  lines_->note_unfired(c, observation);
}

}  // namespace lockstep::properties
