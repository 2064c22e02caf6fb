// Which parameters a rank of PyTorch counts as used when a pass ends; part of the model in
// hook_model.cc. The functions are pure: any thread may call them, and none fails.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "properties/subject/torch/model/rank_state.h"
#include "reference/expectation.h"
#include "reference/program.h"

namespace lockstep::properties::torch_model {

// Sets `rank.takes`: which parameters take the result of their bucket. `sums`: by parameter, what
// any rank had used when its map was sent. The rank looks at its own map, bucket by bucket, and at
// the sums from the first dense parameter on that it did not use. Its own map may have more than it
// has sent if a backward came after that, as the user may end the pass later. Dynamic mode begins a
// new map with each pass; static mode keeps the one that the end of the first pass leaves.
inline void find_taken(const std::vector<reference::ExpectedBucket>& buckets,
                       const std::vector<std::uint8_t>& sums, Rank& rank) {
  for (const reference::ExpectedBucket& bucket : buckets)
    for (const std::uint32_t parameter : bucket.parameters) {
      if (!bucket.sparse && rank.used[parameter] == 0 && !rank.has_sums) {
        rank.used = sums;
        rank.has_sums = true;
      }
      rank.takes[parameter] = bucket.sparse ? sums[parameter] : rank.used[parameter];
    }
}

// The same for all ranks that are there, once each has launched all buckets. Plain mode takes every
// parameter for used.
inline void find_taken(reference::Mode mode, const std::vector<reference::ExpectedBucket>& buckets,
                       const std::vector<std::uint32_t>& survivors, std::vector<Rank>& ranks) {
  std::vector<std::uint8_t> sums(ranks.front().used.size(), 0);
  for (const std::uint32_t number : survivors)
    std::transform(sums.begin(), sums.end(), ranks[number].sent.begin(), sums.begin(),
                   std::bit_or<std::uint8_t>());
  for (const std::uint32_t number : survivors) {
    ranks[number].takes.assign(sums.size(), 1);
    if (mode != reference::Mode::kPlain) find_taken(buckets, sums, ranks[number]);
  }
}

}  // namespace lockstep::properties::torch_model
