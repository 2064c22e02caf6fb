#include "properties/observe/user_hook.h"

#include <stdexcept>
#include <string>

#include "reducer/device/device.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

class UserHook final : public CommunicationHook {
 public:
  UserHook(RankEnvironment& environment, bool has_gaps)
      : environment_(environment), has_gaps_(has_gaps) {}

  std::string name() const override { return "user"; }

  Status start(HookBucket& bucket) override {
    const bool begins = bucket.is_first();  // a pass, also after a failed one or a reset
    if (begins) next_ = 0;
    expect(has_gaps_ ? bucket.index() >= next_ : bucket.index() == next_,
           "its buckets do not come in order");
    expect(begins || !was_last_, "a bucket comes after the last one");
    was_last_ = bucket.is_last();
    next_ = bucket.index() + 1;
    check_views(bucket);
    environment_.visit_node();
    const Tensor& flat = bucket.flat();
    Result<Tensor> copy = Tensor::empty(flat.device(), flat.dtype(), flat.shape());
    if (!copy) return copy.error();
    const Transfer transfer{&flat, copy->data(), &flat.shape()};
    Device& device = flat.device();
    device.pack_bucket(device.current_stream(), {&transfer, 1}, bucket.factor());
    if (results_.size() <= static_cast<std::size_t>(bucket.index()))
      results_.resize(static_cast<std::size_t>(bucket.index()) + 1);
    Tensor& kept = results_[static_cast<std::size_t>(bucket.index())];
    kept = std::move(*copy);
    return bucket.all_reduce(kept);
  }

  Result<Tensor> finish(HookBucket& bucket) override {
    expect(was_last_, "no bucket of the pass was the last one");
    environment_.visit_node();
    return std::move(results_[static_cast<std::size_t>(bucket.index())]);
  }

 private:
  static void expect(bool holds, const char* otherwise) {
    if (!holds) throw std::logic_error(otherwise);
  }

  static void check_views(const HookBucket& bucket) {
    const Tensor& flat = bucket.flat();
    const std::byte* end = flat.data();
    std::int64_t elements = 0;
    for (const Tensor& view : bucket.views()) {
      expect(view.storage() == flat.storage() && view.dtype() == flat.dtype(),
             "a view lies elsewhere than its bucket");
      expect(view.shape().is_dense(), "a view is not in the strides of a parameter");
      expect(view.data() >= end, "views overlap");
      end = view.data() + view.elements() * static_cast<std::int64_t>(size_of(view.dtype()));
      elements += view.elements();
    }
    expect(end == flat.data() + flat.elements() * static_cast<std::int64_t>(size_of(flat.dtype())),
           "views do not reach to the bucket's end");
    expect(elements <= flat.elements(), "the views are larger than the bucket");
  }

  RankEnvironment& environment_;
  const bool has_gaps_;
  int next_ = 0;
  bool was_last_ = false;
  std::vector<Tensor> results_;
};

}  // namespace

std::shared_ptr<CommunicationHook> make_user_hook(RankEnvironment& environment, bool has_gaps) {
  return std::make_shared<UserHook>(environment, has_gaps);
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
