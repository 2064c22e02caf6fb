#include "reducer/autograd/contribution.h"

#include <utility>

#include "reducer/base/check.h"
#include "reducer/device/device.h"
#include "reducer/tensor/sparse.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

// Adds `term` to `sum`. The first addition allocates memory of its own, because the receivers of
// what a node sent may share it.
Status add_elements(Tensor& sum, bool& owned, const Tensor& term) {
  Device& device = term.device();
  const Stream stream = device.current_stream();
  if (!owned) {
    Result<Tensor> fresh = Tensor::empty(device, sum.dtype(), sum.shape());
    if (!fresh) return fresh.error();
    device.copy(stream, sum, *fresh);
    sum = std::move(*fresh);
    owned = true;
  }
  device.add(stream, term, sum);
  return {};
}

Status add_entries(Tensor& sum, const Tensor& term) {
  Result<Tensor> both = append(sum, term);
  if (!both) return both.error();
  sum = std::move(*both);
  return {};
}

}  // namespace

bool sent_before(const Contribution& a, const Contribution& b) {
  if (a.slot != b.slot) return a.slot < b.slot;
  if (a.sender != b.sender) return a.sender > b.sender;
  return a.edge < b.edge;
}

Status add_to(Tensor& sum, bool& owned, const Tensor& term) {
  LOCKSTEP_CHECK(sum.defined());
  LOCKSTEP_CHECK(term.defined());
  if (sum.is_sparse() != term.is_sparse())
    return Status(Code::kInvalidArgument,
                  "a sparse and a dense gradient meet at one node: they cannot be added");
  const bool requires_grad = sum.requires_grad() || term.requires_grad();
  LOCKSTEP_RETURN_IF_ERROR(sum.is_sparse() ? add_entries(sum, term)
                                           : add_elements(sum, owned, term));
  sum.set_requires_grad(requires_grad);
  return {};
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
