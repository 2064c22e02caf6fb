#include "properties/subject/torch/model/bucket_layout.h"

#include "properties/subject/torch/model/averaging.h"
#include "properties/subject/torch/model/rebuilt_order.h"
#include "reference/arithmetic.h"
#include "reference/buckets.h"

namespace lockstep::properties::torch_model {

using namespace reference;  // NOLINT: the vocabulary of programs

BucketLayout::BucketLayout(const Program& program, const Policies& policies,
                           ParameterMemory& memory, Expectation& out)
    : program_(program),
      rebuilds_(policies.rebuilds_unless_dynamic && program.options.mode != Mode::kDynamic),
      rules_(layout_rules()),
      memory_(memory),
      out_(out) {
  out_.buckets = first_buckets(program_, policies);
  out_.rebuilt.clear();
}

void BucketLayout::begin(std::uint32_t ranks) {
  ranks_ = ranks;
  index_ = 0;
  has_rebuilt_ = false;
  place();
}

bool BucketLayout::may_rebuild() const { return rebuilds_ && !has_rebuilt_; }

void BucketLayout::rebuild(const std::vector<std::uint32_t>& order) {
  out_.rebuilt.push_back(assign_buckets(program_, rules_, &order));
  order_rebuilt(program_.options, order, out_.rebuilt.back());
  index_ = static_cast<std::uint32_t>(out_.rebuilt.size());
  has_rebuilt_ = true;
  place();
}

void BucketLayout::place() {
  orders_.clear();
  const Hook hook = averaging_hook(program_.options);
  for (std::uint32_t b = 0; b < buckets().size(); ++b) {
    const ExpectedBucket& bucket = buckets()[b];
    for (std::size_t m = 0; m < bucket.parameters.size(); ++m) {
      memory_.places[bucket.parameters[m]].bucket = b;
      memory_.places[bucket.parameters[m]].offset = bucket.offsets[m];
    }
    if (ranks_ > 0)
      orders_.push_back(gloo_ring(ranks_, bucket.count, size_of(wire_dtype(hook, bucket.dtype)),
                                  rules_.max_segment_bytes));
  }
}

}  // namespace lockstep::properties::torch_model
