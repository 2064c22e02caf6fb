// BucketLayout: the buckets that hold at present, where parameters lie in them, and in which order
// each is summed (hook_model.h). One thread; nothing fails.
#pragma once

#include <cstdint>
#include <vector>

#include "properties/subject/torch/model/parameter_memory.h"
#include "properties/subject/torch/model/policies.h"
#include "reference/contract.h"
#include "reference/expectation.h"
#include "reference/order.h"

namespace lockstep::properties::torch_model {

class BucketLayout {
 public:
  // Writes the first buckets into `out`, and later ones as they are made; places parameters in
  // `memory`. All arguments must outlive it.
  BucketLayout(const Program& program, const Policies& policies, ParameterMemory& memory,
               reference::Expectation& out);

  // Goes back to the first buckets, for a new reducer in a group of so many ranks.
  void begin(std::uint32_t ranks);
  // Keeps the buckets, and lets them be rebuilt once more, as PyTorch's reset_state() does.
  void expect_rebuild() { has_rebuilt_ = false; }
  // Returns whether buckets are still to be rebuilt, in the order in which a complete pass has its
  // gradients ready.
  bool may_rebuild() const;
  // Makes new buckets of parameters in the order in which they were ready.
  void rebuild(const std::vector<std::uint32_t>& order);

  const std::vector<reference::ExpectedBucket>& buckets() const {
    return index_ == 0 ? out_.buckets : out_.rebuilt[index_ - 1];
  }
  std::uint32_t index() const { return index_; }  // ExpectedStep::layout
  const std::vector<reference::OrderRun>& order_of(std::uint32_t bucket) const {
    return orders_[bucket];
  }

 private:
  void place();

  const Program& program_;
  const bool rebuilds_;
  const reference::Contract rules_;
  ParameterMemory& memory_;
  reference::Expectation& out_;
  std::uint32_t ranks_ = 0;
  std::uint32_t index_ = 0;  // 0, or 1 + the index into Expectation::rebuilt
  bool has_rebuilt_ = false;
  std::vector<std::vector<reference::OrderRun>> orders_;  // by bucket
};

}  // namespace lockstep::properties::torch_model
