#include "properties/lane/rank_host.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "properties/case/case_json.h"
#include "properties/hosts/namespaces.h"
#include "properties/hosts/network_faults.h"
#include "properties/hosts/node_faults.h"
#include "properties/hosts/store_client.h"
#include "properties/lane/rank_fork_server.h"
#include "properties/lane/rank_json.h"
#include "properties/lane/rank_server.h"
#include "properties/process/message.h"
#include "properties/process/process_end.h"
#include "properties/process/system_error.h"

namespace lockstep::properties {
namespace {

using hosts::Clock;
using std::chrono::milliseconds;

constexpr auto kMessageLimit = std::chrono::seconds(10);
constexpr auto kEndLimit = milliseconds(500);         // of a rank that has hung up
constexpr auto kStopLimit = std::chrono::seconds(2);  // of a rank that has announced a stop
constexpr auto kTurn = milliseconds(1000);
constexpr auto kShortTurn = milliseconds(2);  // while a rank has to stop first

class RankHost {
 public:
  explicit RankHost(int line) : line_(line), network_(hosts::data_address) {}
  ~RankHost() { (void)end_child(milliseconds(0)); }
  RankHost(const RankHost&) = delete;
  RankHost& operator=(const RankHost&) = delete;

  Status run() {
    while (true) {
      if (wants_continue_) try_to_continue();
      const auto due = std::min(network_.end_those_due(), node_.end_those_due()) - Clock::now();
      const auto turn = wants_continue_ ? kShortTurn : kTurn;
      const auto wait = std::clamp(std::chrono::ceil<milliseconds>(due), milliseconds(0), turn);
      pollfd entries[] = {{line_, POLLIN, 0}, {child_fd_, POLLIN, 0}};
      if (::poll(entries, 2, static_cast<int>(wait.count())) <= 0) continue;
      if (entries[0].revents != 0 && !obey()) return broken_;
      // What the controller said may have ended the child.
      if (entries[1].revents != 0 && child_fd_ == entries[1].fd && !hear()) return broken_;
    }
  }

 private:
  bool say(char kind, const std::string& text) const {
    return send_message(line_, kind + text, kMessageLimit);
  }

  // The controller says something that no controller says: this host ends with an error.
  bool complain(const std::string& what) {
    broken_ = Status(Code::kCorrupted,
                     "the controller " + what +
                         ", so that this rank ends: is --store the address of a controller of the "
                         "same version of Lockstep?");
    return false;
  }

  // Both return false when the line is lost, which ends this host in peace, or is of no use.
  bool obey() {
    std::string text;
    switch (receive_message(line_, text, kMessageLimit)) {
      case Receive::kClosed:
        return false;
      case Receive::kTimeout:
        return complain("has sent a part of a message and no more");
      case Receive::kForeign:
        return complain("has sent what is no message");
      case Receive::kMessage:
        break;
    }
    if (text.empty()) return complain("has sent an empty message");
    const std::string body = text.substr(1);
    switch (text[0]) {
      case kRequest:
        try {
          if (const Status status = prepare(body); !status.ok())
            return say(kEnded, "did not start: " + status.failure().detail);
        } catch (const nlohmann::json::exception&) {
          return complain("has sent a request that cannot be read");
        }
        return give(body);
      case kToRank:
        return give(body);
      case kContinue:
        // A stop that was seen already is not seen again.
        if (std::exchange(waits_for_store_, false))
          ::kill(child_pid_, SIGCONT);
        else
          wants_continue_ = child_pid_ > 0;
        return true;
      case kKill:
        return say(kKilled, end_child(patience_of(body)));
      case kHeal:
        return say(kHealed, heal());
      default:
        return complain("has sent a message of an unknown kind");
    }
  }

  bool hear() {
    std::string text;
    const Receive got = receive_message(child_fd_, text, kMessageLimit);
    if (got == Receive::kClosed) return say(kEnded, end_child(kEndLimit));
    // Foreign bytes are passed on as what they are: no message.
    if (got != Receive::kMessage || text.empty()) return say('?', {});
    if (text[0] != kFaults) return send_message(line_, text, kMessageLimit);
    return begin_faults(text.substr(1));
  }

  static milliseconds patience_of(const std::string& text) {
    std::uint32_t ms = 0;
    std::from_chars(text.data(), text.data() + text.size(), ms);
    return milliseconds(ms);
  }

  // Starts the rank's process, unless it runs and has what the faults of the case need. The rank
  // says itself what is wrong with a request that cannot be read.
  Status prepare(const std::string& text) {
    const RankRequest request = rank_request_from(text);
    const Result<Case> c = from_json(request.case_text, "request");
    if (c) network_.prepare(c->faults, request.rank);
    const bool has_node_faults =
        c && std::any_of(c->faults.faults.begin(), c->faults.faults.end(), [&](const auto& each) {
          return each.rank == request.rank && hosts::is_of_process(each.kind);
        });
    if (has_node_faults || request.program != child_program_) (void)end_child(milliseconds(0));
    if (has_node_faults) node_.prepare();
    const Status started = child_pid_ < 0 ? start_child(request.program) : Status();
    hosts::NodeFaults::end_preparation();
    return started;
  }

  // A rank that does not take its message is lost, and hear() will say so.
  bool give(const std::string& text) const {
    if (child_fd_ >= 0) (void)send_message(child_fd_, text, kMessageLimit);
    return true;
  }

  // `program`: that of the subject's ranks; empty: this one.
  Status start_child(const std::string& program) {
    int fds[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
      return refused_by_system("no socket for a rank's process can be made", errno);
    const Result<pid_t> pid =
        spawn_server(program.empty() ? "/proc/self/exe" : program, {}, "rank-server", fds[1]);
    ::close(fds[1]);
    child_program_ = program;
    if (!pid) {
      ::close(fds[0]);
      return pid.error();
    }
    child_pid_ = *pid;
    child_fd_ = fds[0];
    return {};
  }

  std::string end_child(milliseconds patience) {
    wants_continue_ = waits_for_store_ = false;
    if (child_pid_ < 0) return "had ended before";
    const std::optional<int> status = end_within(child_pid_, patience);
    ::close(child_fd_);
    child_pid_ = child_fd_ = -1;
    return status ? describe_end(*status) : "closed its connection and went on, and was killed";
  }

  bool has_stopped() const {
    siginfo_t stop{};
    const auto id = static_cast<id_t>(child_pid_);
    return ::waitid(P_PID, id, &stop, WSTOPPED | WNOHANG) == 0 && stop.si_pid != 0;
  }

  void try_to_continue() {
    if (!has_stopped() && !has_ended(child_pid_)) return;
    ::kill(child_pid_, SIGCONT);
    wants_continue_ = false;
  }

  // The rank stops itself, and goes on when its faults have begun. Those of the store are the
  // controller's, which continues the rank then.
  bool begin_faults(const std::string& text) {
    const Clock::time_point deadline = Clock::now() + kStopLimit;
    while (!has_stopped() && !has_ended(child_pid_) && Clock::now() < deadline) ::usleep(200);
    std::vector<faults::Fault> of_store;
    const auto faults = faults_from(text);
    for (const faults::Fault& each : faults.value_or(std::vector<faults::Fault>()))
      if (faults::is_of_store(each.kind))
        of_store.push_back(each);
      else if (hosts::is_of_process(each.kind))
        node_.begin(each, child_pid_);
      else
        network_.begin(each);
    waits_for_store_ = !of_store.empty();
    if (waits_for_store_) return say(kFaults, to_text(of_store));
    ::kill(child_pid_, SIGCONT);
    return true;
  }

  std::string heal() {
    nlohmann::json reports = nlohmann::json::array();
    for (const auto& ended : {network_.end_all(), node_.end_all()})
      for (const hosts::FaultReport& each : ended)
        reports.push_back({static_cast<int>(each.kind), each.acted, each.why});
    return reports.dump();
  }

  const int line_;
  hosts::NetworkFaults network_;
  hosts::NodeFaults node_;
  pid_t child_pid_ = -1;
  int child_fd_ = -1;
  std::string child_program_;  // as of start_child()
  bool wants_continue_ = false;
  bool waits_for_store_ = false;  // the rank stops until its faults of the store have begun
  Status broken_;                 // why the line is of no use; ok: the controller has hung up
};

// Leaves the network for a namespace, and waits until the controller has plugged that in.
Status change_network(int fd) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const Status left = hosts::leave_network();
  const std::string told = left.ok() ? std::string() : left.failure().detail;
  std::string go;
  const bool is_plugged = send_message(fd, told, kMessageLimit) && left.ok() &&
                          receive_message(fd, go, std::chrono::seconds(60)) == Receive::kMessage;
  ::close(fd);
  if (is_plugged) return {};
  return left.ok() ? Status(Code::kPeerLost, "the controller has ended") : left;
}

}  // namespace

std::optional<std::uint64_t> launched_rank() {
  for (const char* name : {"SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    const char* value = std::getenv(name);
    if (value == nullptr) continue;
    const std::string_view text = value;
    std::uint64_t rank = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), rank);
    if (read.ec == std::errc() && read.ptr == text.data() + text.size()) return rank;
  }
  return std::nullopt;
}

Status run_rank_host(const RankHostOptions& options) {
  const Result<hosts::Address> address = hosts::read_address(options.store);
  if (!address) return address.error();
  Result<hosts::Secret> secret = hosts::Secret::read(options.secret_file);
  if (!secret) return secret.error();
  if (options.network_fd >= 0) LOCKSTEP_RETURN_IF_ERROR(change_network(options.network_fd));
  ::setenv("LOCKSTEP_SECRET_FILE", options.secret_file.c_str(), 1);
  const auto limit = std::chrono::duration<double>(options.connect_seconds);
  const Clock::time_point deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(limit);
  const Result<hosts::Line> line =
      hosts::connect_as(*address, *secret, {hosts::Role::kRank, options.rank, 0}, deadline);
  if (!line) return line.error();
  return RankHost(line->fd()).run();
}

}  // namespace lockstep::properties
