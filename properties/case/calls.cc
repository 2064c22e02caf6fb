#include "properties/case/calls.h"

#include "reference/model/engine.h"

namespace lockstep::properties {
namespace {

using reference::Backward;
using reference::PassKind;
using reference::RankPass;

void add_backward(const RankPass& pass, std::uint32_t number, std::vector<Call>& calls) {
  using Kind = Call::Kind;
  const auto add = [&](Kind kind) {
    calls.push_back({kind, number, static_cast<std::int32_t>(number)});
  };
  const Backward& more = reference::backward_of(pass, number);
  if (more.evaluates) add(Kind::kEvaluate);
  if (more.zeroes) add(Kind::kZeroGrad);
  if (more.updates) add(Kind::kOptimizerStep);
  if (more.drops) add(Kind::kDrop);
  add(Kind::kBackward);
}

}  // namespace

std::vector<Call> calls_of(const reference::Replicated& options, PassKind kind,
                           const RankPass& pass) {
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
  if (pass.keep_outputs || ends_local)
    calls.push_back({Call::Kind::kCheckComplete, count, static_cast<std::int32_t>(count)});
  return calls;
}

}  // namespace lockstep::properties
