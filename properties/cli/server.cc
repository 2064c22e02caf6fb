#include "properties/cli/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "properties/case/case_json.h"
#include "properties/cli/interrupt.h"
#include "properties/lane/time_limit.h"
#include "properties/run/case_runner.h"

namespace lockstep::properties {

Verdict crash_of(const Child& child) {
  return {Failing::kCrash, "crash", "the process that ran the case " + child.how_lost()};
}

Verdict hang_of(std::chrono::milliseconds limit) {
  return {Failing::kDeadlock, "progress",
          fmt::format("the process that ran the case gave no answer within {} s",
                      static_cast<double>(limit.count()) / 1000)};
}

Verdict not_run(const std::string& what) { return {Failing::kInconclusive, "environment", what}; }

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
  while (line.receive(text)) {
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
    if (!line.send(to_json(outcome))) break;
  }
  line.finish();
}

Outcome CaseServer::lost() const {
  Outcome outcome;
  outcome.verdict = crash_of(child_);
  return outcome;
}

// Waits for an answer, until the limit has passed or the user has interrupted the program.
Child::Received CaseServer::receive_unless_interrupted(std::string& answer,
                                                       std::chrono::milliseconds limit) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kTurn(100);
  const Clock::time_point end = Clock::now() + limit;
  while (!interrupted()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    if (left.count() <= 0) break;
    const Child::Received heard = child_.receive(answer, std::min(left, kTurn));
    if (heard != Child::Received::kNothing) return heard;
  }
  return Child::Received::kNothing;
}

Outcome CaseServer::run(const Case& c, Request request) {
  return run(c, request, answer_limit(kind_, subject_, c));
}

Outcome CaseServer::run(const Case& c, Request request, std::chrono::milliseconds limit) {
  Outcome outcome;
  if (!child_.is_running()) {
    const Status status = child_.start([this](ChildLine& line) { serve(line); });
    if (!status.ok()) {
      outcome.verdict = not_run(status.failure().detail);
      return outcome;
    }
  }
  const nlohmann::json message = {{"case", to_json(c)},
                                  {"twice", request.twice},
                                  {"events", request.events},
                                  {"detailed", request.detailed}};
  std::string answer;
  // If the child does not read the message, receive() reports why.
  (void)child_.send(message.dump());
  switch (receive_unless_interrupted(answer, limit)) {
    case Child::Received::kFinished:
    case Child::Received::kLost:
      return lost();
    case Child::Received::kNothing:
      child_.end();
      outcome.verdict =
          interrupted() ? Verdict{Failing::kInconclusive, "server", "interrupted"} : hang_of(limit);
      return outcome;
    case Child::Received::kMessage:
      break;
  }
  Result<Outcome> read = outcome_from_json(answer);
  if (read) return std::move(*read);
  child_.end();
  outcome.verdict = not_run(read.error().to_string());
  return outcome;
}

}  // namespace lockstep::properties
