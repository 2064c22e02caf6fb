#include "properties/cli/server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "properties/case/case_json.h"
#include "properties/cli/interrupt.h"
#include "properties/lane/case_runner.h"
#include "properties/lane/message.h"
#include "properties/lane/nccl_lane.h"

namespace lockstep::properties {

std::string describe_end(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int signal = WTERMSIG(wait_status);
    return fmt::format("killed by signal {} ({})", signal, ::strsignal(signal));
  }
  if (WIFEXITED(wait_status)) return fmt::format("exited with status {}", WEXITSTATUS(wait_status));
  return "ended in an unknown way";
}

CaseServer::~CaseServer() { stop(); }

std::chrono::milliseconds CaseServer::default_limit() const {
  switch (kind_) {
    case LaneKind::kSim:
      return std::chrono::seconds(20);
    case LaneKind::kGloo:
      return std::chrono::seconds(90);
    case LaneKind::kNccl:
      return std::chrono::seconds(200);
  }
  return std::chrono::seconds(20);
}

Status CaseServer::start() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
    return Status(Code::kInternal, fmt::format("socketpair: {}", std::strerror(errno)));
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) {
    const std::string why = std::strerror(errno);
    ::close(fds[0]);
    ::close(fds[1]);
    return Status(Code::kInternal, "fork: " + why);
  }
  if (child == 0) {
    ::close(fds[0]);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(0);
    ::setpgid(0, 0);  // Ctrl-C is for the parent, and its children are killed with it
    serve(fds[1]);
  }
  ::close(fds[1]);
  child_ = child;
  fd_ = fds[0];
  return {};
}

void CaseServer::serve(int fd) {
  CaseRunner runner(kind_, subject_);
  std::string text;
  while (receive_message(fd, text, std::nullopt) == Receive::kMessage) {
    const nlohmann::json request = nlohmann::json::parse(text);
    const Result<Case> c = from_json(request.at("case").get<std::string>(), "request");
    Outcome outcome;
    runner.set_detailed(request.at("detailed"));
    if (c) {
      const Verdict verdict =
          request.at("twice").get<bool>() ? runner.run_twice(*c) : runner.run(*c);
      outcome = outcome_of(verdict, runner.observation(), request.at("events").get<bool>());
    } else {
      outcome.verdict = {Failing::kUsage, "case", c.error().to_string()};
    }
    if (!send_message(fd, to_json(outcome))) break;
  }
  ::_exit(0);
}

void CaseServer::stop() {
  if (child_ < 0) return;
  ::close(fd_);
  ::kill(-child_, SIGKILL);
  ::kill(child_, SIGKILL);
  ::waitpid(child_, nullptr, 0);
  remove_net_plan_of(child_);
  child_ = -1;
  fd_ = -1;
}

// The child closed its end: say how it ended.
Outcome CaseServer::ended() {
  int status = 0;
  ::waitpid(child_, &status, 0);
  remove_net_plan_of(child_);
  ::kill(-child_, SIGKILL);  // ranks that it may have left behind
  ::close(fd_);
  child_ = -1;
  fd_ = -1;
  Outcome outcome;
  outcome.verdict = {Failing::kCrash, "crash",
                     "the process that ran the case was " + describe_end(status)};
  return outcome;
}

// Waits for the beginning of an answer, or until the limit has passed; takes that time off the
// limit.
bool CaseServer::is_interrupted_before_answer(std::chrono::milliseconds& limit) const {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kTurn(100);
  const Clock::time_point end = Clock::now() + limit;
  for (;;) {
    if (interrupted()) return true;
    limit = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    if (limit.count() <= 0) return false;
    pollfd entry{fd_, POLLIN, 0};
    if (::poll(&entry, 1, static_cast<int>(std::min(limit, kTurn).count())) > 0) return false;
  }
}

Outcome CaseServer::run(const Case& c, Request request, std::chrono::milliseconds limit) {
  if (child_ < 0) {
    if (const Status status = start(); !status.ok()) {
      Outcome outcome;
      outcome.verdict = {Failing::kInconclusive, "server", status.to_string()};
      return outcome;
    }
  }
  const nlohmann::json message = {{"case", to_json(c)},
                                  {"twice", request.twice},
                                  {"events", request.events},
                                  {"detailed", request.detailed}};
  std::string answer;
  if (!send_message(fd_, message.dump())) return ended();
  const std::chrono::milliseconds whole_limit = limit;
  if (is_interrupted_before_answer(limit)) {
    stop();
    Outcome outcome;
    outcome.verdict = {Failing::kInconclusive, "server", "interrupted"};
    return outcome;
  }
  switch (receive_message(fd_, answer, limit)) {
    case Receive::kClosed:
      return ended();
    case Receive::kTimeout: {
      stop();
      Outcome outcome;
      outcome.verdict = {Failing::kDeadlock, "progress",
                         fmt::format("the process that ran the case gave no answer within {} s",
                                     whole_limit.count() / 1000)};
      return outcome;
    }
    case Receive::kMessage:
      break;
  }
  Result<Outcome> outcome = outcome_from_json(answer);
  if (outcome) return std::move(*outcome);
  Outcome unreadable;
  unreadable.verdict = {Failing::kInconclusive, "server", outcome.error().to_string()};
  return unreadable;
}

}  // namespace lockstep::properties
