// Outcome: which errors a rank may report of those that a program ends in by itself. A rank that
// raises an error reports it, and so do its peers, which may be in another step by then. What
// faults add to that is no matter of the model.
//
// Pure functions of what the model expects and of the recoveries that took place; any thread;
// nothing fails. The results refer to the expectation, which outlives them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "reference/expectation.h"
#include "reference/model.h"

namespace lockstep::reference {

struct ModelledRun {
  const Program& program;
  const Expectation& expectation;
  const std::vector<Recovery>& recoveries;
};

// ---- Who waits for whom ----

// Whether both ranks are in the same group (F7). Other ranks exchange no messages.
bool are_peers(const Program& program, std::size_t one, std::size_t other);
// The number of an original rank in its group of `step`; -1 if it has left.
int rank_in_group(const Program& program, const std::vector<Recovery>& recoveries,
                  std::uint32_t step, std::size_t original);
// Whether a rank can finish the step only after all ranks have reached it, more precisely its
// collective number `first` or a later one. A collective without elements does not synchronize all
// ranks: only neighbours exchange messages. The root of a broadcast need not wait.
bool holds_together(const ExpectedStep& step, std::size_t first = 0);
// Like the above, for a collective of any of the rank's reducers.
bool holds_together(const Program& program, const Expectation& expectation, std::size_t rank,
                    std::uint32_t step);
// The steps in which a peer may be while `rank` is in `step`: from the last step that this rank
// could finish without the peer, to the next step that the peer cannot finish alone.
std::uint32_t first_reached(const ModelledRun& run, std::size_t rank, std::uint32_t step);
std::uint32_t last_reached(const ModelledRun& run, std::size_t rank, std::uint32_t step);

// ---- Passes ----

// The first step of this step's group, or of its reducers.
std::uint32_t begin_of_group(const ModelledRun& run, std::uint32_t step);
// The number of the step's pass, or of the pass that would come next in the step, in a group that
// begins with step `begin`. `share` is that of a reducer.
std::int64_t pass_number(const Expectation& share, std::uint32_t step, std::uint32_t begin);

// ---- Errors ----

struct ReportableError {
  Error error = Error::kNone;
  std::uint32_t reducer = 0;
  std::uint32_t step = 0;  // in which it arises
  int culprit = 0;  // the rank that it names, or suspects (Error::kAbsent), by its number in the
                    // group; -1: nobody
  std::int64_t pass = 0;
  // The call that raises it (ExpectedRankStep::error_call), if the rank raises it itself.
  std::optional<std::uint32_t> call;
  // The parameters of which it names all, or one. kAnything: it may name any of them, or none.
  enum class Naming : std::uint8_t { kAnything, kAll, kOne };
  Naming naming = Naming::kAnything;
  const std::vector<std::uint32_t>* parameters = nullptr;
};

// Those that `rank` may report in `step`: the errors of the step, and of later ones that a peer can
// have reached. A peer cannot be ahead by more than one step that communicates.
std::vector<ReportableError> reportable_errors(const ModelledRun& run, std::size_t rank,
                                               std::uint32_t step);
// Those that a rank without inputs may report (S2), which does not know in which step others are.
std::vector<ReportableError> reportable_errors_of_join(const ModelledRun& run, std::size_t rank);

}  // namespace lockstep::reference
