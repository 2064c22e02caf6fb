#include "reference/model/uneven_inputs.h"

#include <cassert>

#include "reference/model/engine.h"

namespace lockstep::reference {

Ranks ranks_with_inputs(const Program& program, const Ranks& survivors, std::uint32_t step) {
  Ranks active;
  for (const std::uint32_t rank : survivors)
    if (has_input(program, rank, step)) active.push_back(rank);
  return active;
}

std::uint32_t divisor_of(const Replicated& options, const Ranks& survivors, const Ranks& active) {
  const bool by_active = options.join == Join::kByActive;
  return static_cast<std::uint32_t>(by_active ? active.size() : survivors.size());
}

std::vector<ExpectedCollective> announcement(const Replicated& options, const Ranks& survivors) {
  constexpr std::uint64_t kEvents = 3;
  constexpr std::uint64_t kOptions = 2;
  if (options.join == Join::kNone) return {};
  return {{ExpectedCollective::Op::kAnnounce, 0, kEvents + kOptions + survivors.size()}};
}

bool ends_early(const Replicated& options, const Ranks& survivors, const Ranks& active) {
  return options.early_termination && active.size() < survivors.size();
}

void fail_early(const Ranks& active, const Step& step, bool is_forward, ExpectedStep& expected) {
  expected.any_error = true;
  for (const std::uint32_t rank : active) {
    ExpectedRankStep& failed = expected.ranks[rank];
    assert(failed.present);
    failed.outcome = Outcome::kOwnError;
    failed.error = Error::kUnevenInputs;
    failed.error_call = is_forward ? kForwardCall : first_synced_call(pass_of(step, rank));
  }
}

}  // namespace lockstep::reference
