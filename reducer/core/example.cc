// PassCore drives two ranks of a toy: a tensor is a vector, and the group adds when both are there.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "reducer/core/pass_core.h"

using lockstep::core::Action;
using lockstep::core::LaunchTime;
using lockstep::core::Mode;
using lockstep::core::PassCore;
using ToyTensor = std::vector<float>;

constexpr std::uint32_t kBucketOf[] = {1, 1, 0};  // The last parameters are ready first.

struct ToyRank {
  PassCore core{Mode::kPlain, LaunchTime::kWhenReady};
  std::vector<ToyTensor> gradients{{1, 2}, {3}, {4, 5, 6}};
  std::vector<ToyTensor> buckets{ToyTensor(3), ToyTensor(3)};
  std::vector<std::size_t> launched;

  ToyRank() {
    for (std::size_t p = 0; p < gradients.size(); ++p) core.add_parameter();
    core.set_buckets(kBucketOf, buckets.size());
  }
  ToyTensor::iterator view(std::size_t p) {
    return buckets[kBucketOf[p]].begin() + (p == 1 ? 2 : 0);
  }
  void carry_out(const Action& action) {
    if (action.kind == Action::Kind::kCopyToBucket) {
      std::copy(gradients[action.index].begin(), gradients[action.index].end(), view(action.index));
      core.on_copied(action.index);
    }
    for (Action next = core.next_launch(); next.kind != Action::Kind::kNone;
         next = core.next_launch()) {
      launched.push_back(next.index);  // A real owner starts the all-reduce here.
      core.on_launched(next.index);
    }
  }
};

int main() {
  ToyRank ranks[2];
  ranks[1].gradients = {{3, 4}, {5}, {6, 7, 8}};
  for (ToyRank& rank : ranks) {
    rank.core.begin_pass();
    rank.core.on_backward_begin();
    for (const std::size_t hook : {1u, 2u, 0u})
      if (rank.core.on_gradient_arriving(hook)) rank.carry_out(rank.core.on_hook(hook));
    rank.carry_out(rank.core.on_backward_end());
  }
  for (const std::size_t b : ranks[0].launched)  // The group: a sum, scaled by 1/2.
    for (std::size_t i = 0; i < 3; ++i)
      ranks[0].buckets[b][i] = (ranks[0].buckets[b][i] + ranks[1].buckets[b][i]) / 2;
  ranks[0].core.on_pass_complete();
  std::printf("launched %zu then %zu; parameter 1 averages to %g\n", ranks[0].launched.at(0),
              ranks[0].launched.at(1), static_cast<double>(*ranks[0].view(1)));
}
