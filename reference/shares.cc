#include "reference/shares.h"

#include <algorithm>

#include "reference/state.h"

namespace lockstep::reference {
namespace {

class Together {
 public:
  Together(const Program& program, Expectation& out)
      : program_(program),
        out_(out),
        reducers_(reducer_count(program)),
        tensors_(state_tensors(program)) {}

  void run() {
    out_.bits.clear();
    for (const Expectation& share : out_.shares) {
      first_bits_.push_back(out_.bits.size());
      out_.bits.insert(out_.bits.end(), share.bits.begin(), share.bits.end());
    }
    out_.buckets = out_.shares.front().buckets;
    out_.rebuilt = out_.shares.front().rebuilt;
    out_.steps.resize(program_.steps.size());
    for (std::size_t s = 0; s < out_.steps.size(); ++s) put_step(s);
    out_.ending.clear();
    if (out_.shares.front().ending.empty()) return;
    out_.ending.resize(program_.world);
    for (std::uint32_t rank = 0; rank < program_.world; ++rank)
      put_values(
          rank, [](const Expectation& share) -> const auto& { return share.ending; },
          out_.ending[rank]);
  }

 private:
  std::size_t first_share(std::uint32_t rank) const {
    return group_of(program_, rank) * std::size_t{reducers_};
  }

  void put_step(std::size_t s) {
    ExpectedStep& step = out_.steps[s];
    step = ExpectedStep();
    step.collectives = out_.shares.front().steps[s].collectives;
    step.layout = out_.shares.front().steps[s].layout;
    for (const Expectation& share : out_.shares) {
      step.any_error = step.any_error || share.steps[s].any_error;
      step.is_reduced = step.is_reduced || share.steps[s].is_reduced;
    }
    step.ranks.resize(program_.world);
    for (std::uint32_t rank = 0; rank < program_.world; ++rank) {
      put_values(
          rank, [s](const Expectation& share) -> const auto& { return share.steps[s].ranks; },
          step.ranks[rank]);
      put_outcome(s, rank, step.ranks[rank]);
    }
  }

  // Gradients and state, each from the share whose it is.
  template <class Ranks>
  void put_values(std::uint32_t rank, const Ranks& ranks_of, ExpectedRankStep& to) const {
    const std::size_t first = first_share(rank);
    const auto of = [&](std::uint32_t reducer) -> const ExpectedRankStep& {
      return ranks_of(out_.shares[first + reducer])[rank];
    };
    to.present = of(0).present;
    to.gradients = of(0).gradients;
    to.state = of(0).state;
    for (std::size_t p = 0; p < to.gradients.size(); ++p) {
      const std::uint32_t reducer = program_.parameters[p].reducer;
      to.gradients[p] = of(reducer).gradients[p];
      to.gradients[p].offset += first_bits_[first + reducer];
    }
    for (std::size_t t = 0; t < to.state.size(); ++t)
      to.state[t] = of(tensors_[t].reducer).state[t];
  }

  // A rank that fails with one reducer stops in the middle of the other's pass.
  void put_outcome(std::size_t s, std::uint32_t rank, ExpectedRankStep& to) const {
    const std::size_t first = first_share(rank);
    bool any_error = false;
    for (std::uint32_t reducer = 0; reducer < reducers_; ++reducer)
      any_error = any_error || out_.shares[first + reducer].steps[s].any_error;
    const bool leaves = out_.steps[s].any_error && program_.options.join != Join::kNone;
    to.outcome = any_error || leaves ? Outcome::kSuccessOrPeerError : Outcome::kSuccess;
    for (std::uint32_t reducer = reducers_; reducer-- > 0;) {
      const ExpectedRankStep& from = out_.shares[first + reducer].steps[s].ranks[rank];
      if (from.outcome == Outcome::kPeerError && to.outcome != Outcome::kOwnError)
        to.outcome = Outcome::kPeerError;
      if (from.outcome != Outcome::kOwnError) continue;
      to.outcome = Outcome::kOwnError;
      to.error = from.error;
      to.error_call = from.error_call;
      to.parameters = from.parameters;
      to.requiring = from.requiring;
    }
  }

  const Program& program_;
  Expectation& out_;
  const std::uint32_t reducers_;
  const std::vector<StateTensor> tensors_;
  std::vector<std::uint64_t> first_bits_;  // of each share, in those of all
};

}  // namespace

void merge_expectations(const Program& program, Expectation& out) { Together(program, out).run(); }

}  // namespace lockstep::reference
