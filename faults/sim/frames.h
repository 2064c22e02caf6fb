// SimFrames: sends the frames of a verified collective (reducer/comm/verified.h) as messages of the
// simulated network, and applies the payload faults of the plan to what a rank is about to send.
#pragma once

#include <cstdint>

#include "faults/payload.h"
#include "faults/sim/collectives.h"
#include "faults/sim/network.h"
#include "reducer/comm/verified.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace simulated {

class SimFrames final : public FrameExchange {
 public:
  SimFrames(Exchange& exchange, const Mesh& mesh, faults::Injector& injector,
            faults::SentBefore& before)
      : exchange_(exchange), mesh_(mesh), injector_(injector), before_(before) {}

  int rank() const override { return exchange_.rank(); }
  int size() const override { return exchange_.size(); }
  bool exchange(std::byte* out, std::byte* in, std::size_t frame_bytes) override;
  void add_in_order(const Collective& collective, const std::byte* parts, std::size_t stride,
                    std::size_t bytes, std::byte* sum) override;

 private:
  Exchange& exchange_;
  const Mesh& mesh_;
  faults::Injector& injector_;
  faults::SentBefore& before_;
  std::uint32_t part_ = 0;
};

}  // namespace simulated
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
