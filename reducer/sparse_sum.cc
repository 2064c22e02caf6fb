#include "reducer/sparse_sum.h"

#include <algorithm>
#include <string>
#include <utility>

#include "reducer/base/check.h"
#include "reducer/base/sizes.h"
#include "reducer/comm/verified.h"
#include "reducer/tensor/sparse.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

constexpr std::int64_t kPadding = -1;

Collective all_gather(DType dtype, std::uint64_t count, const void* data, void* gathered) {
  LOCKSTEP_CHECK(count > 0);
  LOCKSTEP_CHECK(gathered != nullptr);
  Collective collective;
  collective.op = Op::kAllGather;
  collective.dtype = dtype;
  collective.count = count;
  collective.data = static_cast<std::byte*>(const_cast<void*>(data));
  collective.gathered = static_cast<std::byte*>(gathered);
  return collective;
}

}  // namespace

Status SparseSum::take(const Tensor& gradient, double factor) {
  LOCKSTEP_CHECK(parameter_.has_sparse_gradients());
  const Shape& whole = parameter_.shape();
  Device& device = parameter_.device();
  Result<Tensor> own = gradient.defined() ? coalesce(gradient, whole)
                                          : empty_sparse(device, parameter_.dtype(), whole, {});
  if (!own) return own.error();
  const Transfer scaled{&*own, own->data(), &own->shape()};
  device.pack_bucket(device.current_stream(), {&scaled, 1}, factor);
  own_ = std::move(*own);
  own_count_ = static_cast<std::int64_t>(own_.rows().size());
  return {};
}

Collective SparseSum::count(const ProcessGroup& group) {
  LOCKSTEP_CHECK(own_.defined());  // take() comes first.
  rank_ = group.rank();
  counts_.assign(static_cast<std::size_t>(group.size()), 0);
  return all_gather(DType::kByte, sizeof own_count_, &own_count_, counts_.data());
}

// A rank sends each row of the parameter at most once, ascending. Its own number comes back as it
// was sent.
Status SparseSum::check_counts() const {
  LOCKSTEP_CHECK_LT(static_cast<std::size_t>(rank_), counts_.size());
  const std::int64_t most = parameter_.shape().sizes[0];
  for (std::size_t r = 0; r < counts_.size(); ++r)
    if (counts_[r] < 0 || counts_[r] > most ||
        (static_cast<int>(r) == rank_ && counts_[r] != own_count_))
      return corrupted({static_cast<int>(r), std::to_string(counts_[r]) +
                                                 " rows of a parameter of " + std::to_string(most)},
                       rank_);
  return {};
}

Status SparseSum::check_numbers() const {
  LOCKSTEP_CHECK(!counts_.empty());
  LOCKSTEP_CHECK_EQ(numbers_.size() % counts_.size(), std::size_t{0});
  const std::int64_t end = parameter_.shape().sizes[0];
  const std::size_t longest = numbers_.size() / counts_.size();
  for (std::size_t r = 0; r < counts_.size(); ++r) {
    std::int64_t before = kPadding;
    for (std::size_t i = 0; i < longest; ++i) {
      const std::int64_t number = numbers_[r * longest + i];
      const bool is_row = static_cast<std::int64_t>(i) < counts_[r];
      if (is_row ? number > before && number < end : number == kPadding) {
        before = number;
        continue;
      }
      return corrupted(
          {static_cast<int>(r), "row number " + std::to_string(number) + " as entry " +
                                    std::to_string(i) + " of " + std::to_string(counts_[r])},
          rank_);
    }
  }
  return {};
}

Result<std::vector<Collective>> SparseSum::prepare() {
  LOCKSTEP_CHECK(own_.defined());
  LOCKSTEP_CHECK(!counts_.empty());
  values_ = Tensor();  // They may be left from a pass whose sum nobody needed.
  if (Status status = check_counts(); !status.ok()) return failed(std::move(status));
  const std::int64_t longest = *std::max_element(counts_.begin(), counts_.end());
  if (longest == 0) return std::vector<Collective>();
  // Ranks may announce any number of rows up to that of the parameter, and rows may have no
  // elements.
  const std::int64_t all_rows = multiply_sizes(static_cast<std::int64_t>(counts_.size()), longest);
  if (multiply_sizes(all_rows, sizeof longest) == kTooLarge) return failed(out_of_memory());
  sent_numbers_.assign(own_.rows().begin(), own_.rows().end());
  sent_numbers_.resize(static_cast<std::size_t>(longest), kPadding);
  numbers_.resize(static_cast<std::size_t>(all_rows));
  Device& device = parameter_.device();
  const Shape& whole = parameter_.shape();
  const DType dtype = parameter_.dtype();
  Result<Tensor> sent = Tensor::empty(device, dtype, rows_shape(whole, longest));
  Result<Tensor> all = Tensor::empty(device, dtype, rows_shape(whole, all_rows));
  if (!sent || !all) return failed(sent ? all.error() : sent.error());
  const auto bytes = static_cast<std::size_t>(sent->elements()) * size_of(dtype);
  const Stream stream = device.current_stream();
  device.fill_zero(stream, sent->data(), bytes);
  device.copy(stream, own_, Tensor(sent->storage(), 0, dtype, own_.shape()));
  sent_values_ = std::move(*sent);
  values_ = std::move(*all);
  std::vector<Collective> out{all_gather(DType::kByte, sent_numbers_.size() * sizeof longest,
                                         sent_numbers_.data(), numbers_.data())};
  if (bytes == 0) return out;
  Collective& values =
      out.emplace_back(all_gather(dtype, static_cast<std::uint64_t>(sent_values_.elements()),
                                  sent_values_.data(), values_.data()));
  values.device = &device;
  values.ready = device.record(stream);
  return out;
}

Result<Tensor> SparseSum::sum() {
  const Shape& whole = parameter_.shape();
  sent_values_ = Tensor();
  own_ = Tensor();
  const Tensor values = std::exchange(values_, Tensor());
  if (!values.defined()) return empty_sparse(parameter_.device(), parameter_.dtype(), whole, {});
  LOCKSTEP_CHECK_EQ(static_cast<std::size_t>(values.shape().sizes[0]), numbers_.size());
  if (Status status = check_numbers(); !status.ok()) return failed(std::move(status));
  return coalesce(Tensor(values, make_ref<const RowNumbers>(std::exchange(numbers_, {}))), whole);
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
