#include "properties/cli/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "properties/case/case_json.h"
#include "properties/cli/interrupt.h"
#include "properties/lane/needs.h"
#include "properties/lane/time_limit.h"
#include "properties/process/process_end.h"
#include "properties/run/case_runner.h"

namespace lockstep::properties {

namespace {

// Whether code that is not this program's runs in the subject's process.
bool may_signal(const Subject& subject) {
  const bool is_ours =
      subject.kind == Subject::Kind::kProduction || subject.kind == Subject::Kind::kSeeded;
  return !is_ours || (subject.against && may_signal(*subject.against));
}

}  // namespace

// The child sends this when the case begins anew (run/rerun.h). Any other message is an Outcome.
constexpr const char* kBeginsAgain = "again";

Verdict crash_of(Child& child, const Subject& subject) {
  std::string what = "the process that ran the case " + child.how_lost();
  const std::string cause =
      child.end_status() ? cause_outside(*child.end_status(), may_signal(subject)) : "";
  if (!cause.empty()) return not_run(what + ": " + cause);
  if (const std::string stacks = child.take_stacks(); !stacks.empty())
    what +=
        "\n  where it was:\n" + stacks + "  (addr2line -Cfe FILE OFFSET names the line of a frame)";
  return {Failing::kCrash, "crash", what};
}

Verdict hang_of(HangWatch::Found found, std::chrono::milliseconds taken, LaneKind lane,
                const std::string& stacks) {
  std::string what = fmt::format("the process that ran the case gave no answer within {:.3g} s",
                                 static_cast<double>(taken.count()) / 1000);
  if (found == HangWatch::Found::kIdle)
    what +=
        ", and waits: in the simulator all ranks are fibers of one thread, so that it waits for "
        "ever for a lock of the subject's own that another rank holds over a call of the host "
        "(use lock() and unlock() of the host), and for another thread or process";
  else if (lane == LaneKind::kSim)
    what += ", and computes: a loop that does not end";
  if (!stacks.empty()) what += "\n  where it was:\n" + stacks;
  return {Failing::kDeadlock, "progress", what};
}

Verdict starved_of(std::chrono::milliseconds limit) {
  return not_run(fmt::format(
      "the process that ran the case waited for a processor for most of the time, and gave no "
      "answer within four times its limit of {} s: run less beside it, or fewer jobs (--jobs)",
      static_cast<double>(limit.count()) / 1000));
}

Verdict not_run(const std::string& what) { return {Failing::kInconclusive, "environment", what}; }

Outcome unless_machine_lacks(Outcome outcome, LaneKind lane, const Subject& subject, int jobs) {
  const Failing failing = outcome.verdict.failing;
  if (outcome.verdict.ok() || failing == Failing::kInconclusive) return outcome;
  const Status status = check_needs(still_needed(needs_of(lane, subject, jobs)));
  if (!status.ok())
    outcome.verdict =
        not_run(fmt::format("the case ended in {}, on a machine that lacks what the lane needs: {}",
                            name_of(failing), status.failure().detail));
  return outcome;
}

Outcome run_in_this_process(const Case& c, CaseServer::Request request, LaneKind lane,
                            Subject subject) {
  Outcome outcome;
  if (const Status opened = open_subject(subject); !opened.ok()) {
    outcome.verdict = not_run(opened.failure().detail);
    return outcome;
  }
  CaseRunner runner(lane, subject);
  runner.set_detailed(request.detailed);
  const Verdict verdict = runner.run(c);
  return outcome_of(verdict, runner.observation(), request.events);
}

void CaseServer::serve(ChildLine& line) {
  const Status opened = open_subject(subject_);
  std::string text;
  while (!opened.ok() && line.receive(text)) {
    Outcome outcome;
    outcome.verdict = not_run(opened.failure().detail);
    line.send(to_json(outcome));
  }
  if (!opened.ok()) return;
  CaseRunner runner(kind_, subject_);
  runner.set_on_rerun([&line] { line.send(kBeginsAgain); });
  while (line.receive(text)) {
    const nlohmann::json request = nlohmann::json::parse(text);
    const Result<Case> c = from_json(request.at("case").get<std::string>(), "request");
    Outcome outcome;
    runner.set_detailed(request.at("detailed"));
    if (c) {
      const Verdict verdict =
          request.at("twice").get<bool>() ? runner.run_twice(*c) : runner.run(*c);
      outcome = outcome_of(verdict, runner.observation(), request.at("events").get<bool>());
      if (request.at("gradients").get<bool>())
        outcome.gradients = gradient_records(*c, runner.expectation(), runner.observation());
    } else {
      outcome.verdict = {Failing::kUsage, "case", c.error().to_string()};
    }
    if (!line.send(to_json(outcome))) break;
  }
  line.finish();
}

Outcome CaseServer::lost() {
  Outcome outcome;
  outcome.verdict = crash_of(child_, subject_);
  return outcome;
}

Outcome CaseServer::given_up(Verdict verdict) {
  child_.end();
  Outcome outcome;
  outcome.verdict = std::move(verdict);
  return outcome;
}

Outcome CaseServer::run(const Case& c, Request request) {
  return run(c, request, answer_limit(kind_, subject_, c));
}

Outcome CaseServer::run(const Case& c, Request request, std::chrono::milliseconds limit) {
  constexpr std::chrono::milliseconds kTurn(100);
  begin(c, request, limit);
  while (true)
    if (std::optional<Outcome> outcome = wait(kTurn)) return std::move(*outcome);
}

void CaseServer::begin(const Case& c, Request request) {
  begin(c, request, answer_limit(kind_, subject_, c));
}

void CaseServer::begin(const Case& c, Request request, std::chrono::milliseconds limit) {
  limit_ = limit;
  not_started_.clear();
  if (!child_.is_running()) {
    const Status status = child_.start([this](ChildLine& line) { serve(line); });
    if (!status.ok()) {
      not_started_ = status.failure().detail;
      return;
    }
  }
  const nlohmann::json message = {{"case", to_json(c)},
                                  {"twice", request.twice},
                                  {"events", request.events},
                                  {"detailed", request.detailed},
                                  {"gradients", request.gradients}};
  // If the child does not read the message, receive() reports why.
  (void)child_.send(message.dump());
  start_ = Clock::now();
}

std::optional<Outcome> CaseServer::wait(std::chrono::milliseconds turn) {
  Outcome outcome;
  if (!not_started_.empty()) {
    outcome.verdict = not_run(not_started_);
    return outcome;
  }
  if (interrupted()) return given_up({Failing::kInconclusive, "server", "interrupted"});
  const auto taken = std::chrono::floor<std::chrono::milliseconds>(Clock::now() - start_);
  const HangWatch::Found found = watch_.look(child_.group(), {taken, limit_}, idle_limit(kind_));
  if (found == HangWatch::Found::kHung || found == HangWatch::Found::kIdle)
    return given_up(hang_of(found, taken, kind_, child_.take_stacks()));
  if (found == HangWatch::Found::kStarved) return given_up(starved_of(limit_));
  std::string answer;
  switch (child_.receive(answer, turn)) {
    case Child::Received::kFinished:
    case Child::Received::kLost:
      return lost();
    case Child::Received::kNothing:
      return std::nullopt;
    case Child::Received::kMessage:
      break;
  }
  if (answer == kBeginsAgain) {
    start_ = Clock::now();
    return std::nullopt;
  }
  Result<Outcome> read = outcome_from_json(answer);
  if (read) return std::move(*read);
  child_.end();
  outcome.verdict = not_run(read.error().to_string());
  return outcome;
}

}  // namespace lockstep::properties
