#include "properties/case/calls.h"

#include "reference/model/engine.h"

namespace lockstep::properties {
namespace {

using reference::Backward;
using reference::PassKind;
using reference::RankPass;

void add_backward(const RankPass& pass, std::uint32_t number, std::vector<Call>& calls) {
  using Kind = Call::Kind;
  const Backward more = pass.backwards.empty() ? Backward() : pass.backwards[number];
  if (more.evaluates) calls.push_back({Kind::kEvaluate, number});
  if (more.zeroes) calls.push_back({Kind::kZeroGrad, number});
  if (more.updates) calls.push_back({Kind::kOptimizerStep, number});
  if (more.drops) calls.push_back({Kind::kDrop, number});
  calls.push_back({Kind::kBackward, number});
}

}  // namespace

std::vector<Call> calls_of(const reference::Options& options, PassKind kind, const RankPass& pass) {
  std::vector<Call> calls;
  if (kind == PassKind::kNoGrad && pass.skip) return calls;
  if (!reference::zeroes_late(pass)) calls.push_back({Call::Kind::kZeroGrad});
  const bool has_backwards = kind != PassKind::kNoGrad && reference::kept_outputs(pass) > 0;
  std::uint32_t next = 0;
  for (std::uint32_t f = 0; f < pass.forwards.size(); ++f) {
    calls.push_back({Call::Kind::kForward, f});
    while (has_backwards && next < pass.backwards.size() && pass.backwards[next].forwards == f + 1)
      add_backward(pass, next++, calls);
  }
  if (options.manual_sync && kind == PassKind::kSynced)
    calls.push_back({Call::Kind::kSyncGradients});
  if (!has_backwards) return calls;
  const std::uint32_t count = reference::call_count(pass);
  while (next < count) add_backward(pass, next++, calls);
  const bool ends_local = kind == PassKind::kSynced && !reference::is_synced_call(pass, count - 1);
  if (pass.keep_outputs || ends_local) calls.push_back({Call::Kind::kCheckComplete, count});
  return calls;
}

}  // namespace lockstep::properties
