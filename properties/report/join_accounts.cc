#include "properties/report/join_accounts.h"

#include <fmt/format.h>

#include <algorithm>

#include "reducer/diagnosis/diagnosis.h"

namespace lockstep::properties {

std::string join_accounts(const Observation& observation) {
  std::uint32_t last = 0;
  for (const RankObservation& rank : observation.ranks)
    for (const ObservedAccount& each : rank.accounts) last = std::max(last, each.generation);
  std::string out;
  for (std::uint32_t generation = 0; generation <= last; ++generation) {
    std::vector<Account> accounts;
    for (const RankObservation& rank : observation.ranks)
      for (const ObservedAccount& each : rank.accounts)
        if (each.generation == generation) accounts.push_back(each.account);
    if (accounts.empty()) continue;
    const Result<Diagnosis> diagnosis = diagnose(std::move(accounts));
    if (!diagnosis || diagnosis->clean()) continue;
    if (generation > 0) {
      out += fmt::format("in the group after recovery {}", generation);
      if (generation <= observation.recoveries.size())
        out += fmt::format(", of what were ranks {}",
                           fmt::join(observation.recoveries[generation - 1].survivors, " "));
      out += ":\n";
    }
    out += diagnosis->to_string();
  }
  return out;
}

}  // namespace lockstep::properties
