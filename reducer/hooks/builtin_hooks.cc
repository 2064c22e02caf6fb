#include "reducer/hooks/builtin_hooks.h"

#include "reducer/base/check.h"
#include "reducer/device/device.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

// Computes flat = round(flat * k).
void scale(HookBucket& bucket) {
  const Tensor& flat = bucket.flat();
  Device& device = flat.device();
  const Transfer in_place{&flat, flat.data(), &flat.shape()};
  if (bucket.factor() != 1.0)
    device.pack_bucket(device.current_stream(), {&in_place, 1}, bucket.factor());
}

class AllReduceHook final : public CommunicationHook {
 public:
  std::string name() const override { return "all_reduce"; }
  Status start(HookBucket& bucket) override {
    scale(bucket);
    return bucket.all_reduce(bucket.flat());
  }
  Result<Tensor> finish(HookBucket& bucket) override { return bucket.flat(); }
};

class CompressHook final : public CommunicationHook {
 public:
  CompressHook(std::string name, DType wire) : name_(std::move(name)), wire_(wire) {}

  std::string name() const override { return name_; }
  DType wire_dtype(DType dtype) const override {
    return size_of(dtype) > 2 && parts_of(dtype) == 1 ? wire_ : dtype;
  }

  Status start(HookBucket& bucket) override {
    const Tensor& flat = bucket.flat();
    if (wire_dtype(flat.dtype()) == flat.dtype()) {
      scale(bucket);
      return bucket.all_reduce(flat);
    }
    Result<Tensor> packed = buffer(bucket);
    if (!packed) return packed.error();
    Device& device = flat.device();
    device.convert(device.current_stream(), flat, *packed, bucket.factor());
    return bucket.all_reduce(*packed);
  }

  Result<Tensor> finish(HookBucket& bucket) override {
    const Tensor& flat = bucket.flat();
    if (wire_dtype(flat.dtype()) == flat.dtype()) return flat;
    const auto index = static_cast<std::size_t>(bucket.index());
    LOCKSTEP_CHECK_LT(index, buffers_.size());
    LOCKSTEP_CHECK_EQ(buffers_[index].elements(), flat.elements());
    Device& device = flat.device();
    device.convert(device.current_stream(), buffers_[index], flat, 1.0);
    return flat;
  }

 private:
  // Returns the buffer of this bucket. It is made anew when the size differs, because a rebuild
  // changes buckets.
  Result<Tensor> buffer(const HookBucket& bucket) {
    const Tensor& flat = bucket.flat();
    const auto index = static_cast<std::size_t>(bucket.index());
    if (index >= buffers_.size()) buffers_.resize(index + 1);
    Tensor& kept = buffers_[index];
    const bool fits =
        kept.defined() && kept.elements() == flat.elements() && &kept.device() == &flat.device();
    if (!fits) {
      Result<Tensor> made = Tensor::empty(flat.device(), wire_, flat.shape());
      if (!made) return made;
      kept = std::move(*made);
    }
    LOCKSTEP_CHECK(kept.dtype() == wire_);
    return kept;
  }

  const std::string name_;
  const DType wire_;
  std::vector<Tensor> buffers_;  // One entry for each bucket.
};

}  // namespace

std::shared_ptr<CommunicationHook> make_all_reduce_hook() {
  return std::make_shared<AllReduceHook>();
}

std::shared_ptr<CommunicationHook> make_fp16_compress_hook() {
  return std::make_shared<CompressHook>("fp16_compress", DType::kFloat16);
}

std::shared_ptr<CommunicationHook> make_bf16_compress_hook() {
  return std::make_shared<CompressHook>("bf16_compress", DType::kBFloat16);
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
