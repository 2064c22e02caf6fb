#include "properties/compare/fault_round.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "faults/nccl_net/net_plan.h"

namespace lockstep::properties {
namespace {

using Json = nlohmann::json;
using faults::net::NetFault;
using faults::net::NetKind;
using faults::net::NetPlan;

constexpr std::chrono::milliseconds kUntilOperationsRun{300};
constexpr std::chrono::milliseconds kSlack{20000};  // to be told, beyond the group's timeout

Result<std::optional<NetPlan>> make_plan(const std::string& fault, int victim) {
  if (fault != "reset") return std::optional<NetPlan>();
  NetFault reset;
  reset.kind = NetKind::kClose;
  reset.rank = victim;
  reset.waits = true;
  const std::string name = fmt::format("/lockstep-compare-{}", ::getpid());
  NetPlan::remove(name);  // of a killed process that had the same number
  Result<NetPlan> plan = NetPlan::create(name, {reset});
  if (!plan) return failed(plan.error());
  return std::optional<NetPlan>(std::move(*plan));
}

// Does it, and returns the time.
platform::Duration strike(const std::string& fault, pid_t victim, std::optional<NetPlan>& plan) {
  const platform::Duration at = platform::now();
  if (fault == "killed") ::kill(victim, SIGKILL);
  if (fault == "stalled") ::kill(victim, SIGSTOP);
  if (plan) plan->arm(0);
  return at;
}

}  // namespace

Result<std::vector<Told>> run_fault_round(const Fleet::Setup& setup, const std::string& folder,
                                          const std::vector<PreparedOperation>& operations,
                                          FaultRound& round) {
  const int victim = setup.ranks - 1;
  Result<std::optional<NetPlan>> plan = make_plan(round.fault, victim);
  if (!plan) return failed(plan.error());
  Fleet::Setup own = setup;
  if (*plan) own.place.plan = (*plan)->name();
  auto fleet = Fleet::start(own, folder, operations);
  if (!fleet) return failed(fleet.error());
  Result<Fleet::Answers> loaded = (*fleet)->ask({{"do", "load"}});
  if (!loaded) return failed(loaded.error());
  Result<Fleet::Answers> connected =
      (*fleet)->ask({{"do", "connect"}, {"timeout_ms", round.timeout_ms}});
  if (!connected) return failed(connected.error());
  const std::chrono::milliseconds limit = std::chrono::milliseconds(round.timeout_ms) + kSlack;
  Status status = (*fleet)->tell(
      {{"do", "until_failure"}, {"operation", round.operation}, {"limit_ms", limit.count()}});
  if (!status.ok()) return failed(std::move(status));
  std::this_thread::sleep_for(kUntilOperationsRun);
  const platform::Duration at = strike(round.fault, loaded->back().at("pid").get<pid_t>(), *plan);
  // A connection that is reset is the victim's, which is told, too.
  const int tellers = *plan ? setup.ranks : victim;
  std::vector<Told> told;
  for (int rank = 0; rank < tellers; ++rank) {
    Result<Json> answer = (*fleet)->answer_of(rank, limit + kSlack);
    if (!answer) return failed(answer.error());
    round.wrong += answer->value("wrong", std::uint64_t{0});
    const auto after = platform::Duration(answer->at("end").get<std::int64_t>()) - at;
    told.push_back({rank, answer->at("told"), answer->value("text", ""),
                    std::chrono::duration<double, std::milli>(after).count()});
  }
  if (*plan && (*plan)->fired(0) == 0)
    return failed(Status(Code::kInternal, (*plan)->unfired().front()));
  return told;
}

}  // namespace lockstep::properties
