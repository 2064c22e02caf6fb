// GlooFrames is the exchange of a verified collective (verified.h) over Gloo, on a worker's
// context. exchange() throws what Gloo throws, and Interrupted; it never returns false.
#pragma once

#include <gloo/context.h>

#include <cstdint>
#include <memory>

#include "reducer/comm/verified.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class GlooFrames final : public FrameExchange {
 public:
  // `tag` is as for run_collective().
  GlooFrames(std::shared_ptr<::gloo::Context> context, std::uint32_t tag)
      : context_(std::move(context)), tag_(tag) {}

  int rank() const override { return context_->rank; }
  int size() const override { return context_->size; }
  bool exchange(std::byte* out, std::byte* in, std::size_t frame_bytes) override;
  void add_in_order(const Collective& collective, const std::byte* parts, std::size_t stride,
                    std::size_t bytes, std::byte* sum) override;

 private:
  const std::shared_ptr<::gloo::Context> context_;
  const std::uint32_t tag_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
