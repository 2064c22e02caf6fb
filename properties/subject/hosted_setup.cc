#include "properties/subject/hosted_setup.h"

#include <algorithm>
#include <limits>

#include "reducer/base/check.h"
#include "reference/buckets.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

std::uint32_t to_c(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return LOCKSTEP_FLOAT32;
    case DType::kFloat64:
      return LOCKSTEP_FLOAT64;
    case DType::kFloat16:
      return LOCKSTEP_FLOAT16;
    case DType::kBFloat16:
      return LOCKSTEP_BFLOAT16;
    case DType::kInt32:
      return LOCKSTEP_INT32;
    case DType::kComplex64:  // no subject has parameters of this type
    case DType::kByte:
      break;
  }
  return LOCKSTEP_BYTE;
}

// Rounds up, so that a short wait does not become none.
std::uint32_t milliseconds(platform::Duration duration) {
  constexpr std::int64_t kNone32 = std::numeric_limits<std::uint32_t>::max();
  const std::int64_t whole =
      std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
  const std::int64_t up = whole + (std::chrono::milliseconds(whole) < duration ? 1 : 0);
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(up, 0, kNone32));
}

}  // namespace

HostedParameters::HostedParameters(const std::vector<Ref<Parameter>>& parameters,
                                   const reference::Program& program)
    : mode(program.options.mode), repeated_hooks(program.options.repeated_hooks) {
  LOCKSTEP_CHECK_EQ(parameters.size(), program.parameters.size());
  std::vector<std::uint32_t> number_of(parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto found = std::find(distinct.begin(), distinct.end(), parameters[i]);
    number_of[i] = static_cast<std::uint32_t>(found - distinct.begin());
    if (found == distinct.end()) distinct.push_back(parameters[i]);
  }
  LOCKSTEP_CHECK_LE(distinct.size(), std::size_t{LOCKSTEP_MAX_PARAMETERS});
  buckets = reference::assign_buckets(program, reference::Contract::lockstep());
  for (reference::ExpectedBucket& bucket : buckets)
    for (std::uint32_t& parameter : bucket.parameters) parameter = number_of[parameter];
}

HostedSetup::HostedSetup(const HostedParameters& parameters, const ProcessGroup& group,
                         platform::Duration failure_grace) {
  for (const Ref<Parameter>& parameter : parameters.distinct) {
    lockstep_parameter& each = parameters_.emplace_back();
    each.name = parameter->name().c_str();
    each.count = static_cast<std::uint64_t>(parameter->shape().elements());
    each.dtype = to_c(parameter->dtype());
    each.device = static_cast<std::uint32_t>(parameter->device().index());
    each.requires_grad = parameter->requires_grad() ? 1 : 0;
  }
  for (const reference::ExpectedBucket& bucket : parameters.buckets) {
    std::vector<lockstep_member>& members = members_.emplace_back();
    for (std::size_t m = 0; m < bucket.parameters.size(); ++m)
      members.push_back(
          {bucket.parameters[m], bucket.offsets[m], parameters_[bucket.parameters[m]].count});
    LOCKSTEP_CHECK(!members.empty());
    const lockstep_parameter& first = parameters_[members[0].parameter];
    buckets_.push_back({bucket.count, first.dtype, first.device,
                        static_cast<std::uint32_t>(members.size()), members.data()});
  }
  setup_.size = sizeof setup_;
  setup_.rank = static_cast<std::uint32_t>(group.rank());
  setup_.world = static_cast<std::uint32_t>(group.size());
  setup_.mode = parameters.mode == reference::Mode::kDynamic ? LOCKSTEP_DYNAMIC : LOCKSTEP_PLAIN;
  setup_.timeout_ms = milliseconds(group.timeout());
  setup_.grace_ms = milliseconds(failure_grace);
  setup_.parameter_count = static_cast<std::uint32_t>(parameters_.size());
  setup_.parameters = parameters_.data();
  setup_.bucket_count = static_cast<std::uint32_t>(buckets_.size());
  setup_.buckets = buckets_.data();
  setup_.repeated_hooks = parameters.repeated_hooks ? 1 : 0;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
