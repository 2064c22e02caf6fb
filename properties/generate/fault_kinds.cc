#include "properties/generate/fault_kinds.h"

#include <fmt/format.h>

#include <vector>

#include "properties/case/nearest.h"

namespace lockstep::properties {

using faults::Kind;

FaultKinds drawable_kinds(const GenerateOptions& options) {
  using Lane = GenerateOptions::Lane;
  FaultKinds out;
  for (int i = 0; i < faults::kKinds; ++i) {
    const auto kind = static_cast<Kind>(i);
    const bool is_listed =
        options.faults == GenerateOptions::Faults::kSwarm ||
        (options.faults == GenerateOptions::Faults::kList && options.kinds.has(kind));
    const bool is_of_lane = options.lane == Lane::kGloo   ? kGlooKinds.has(kind)
                            : options.lane == Lane::kNccl ? kNcclKinds.has(kind)
                                                          : !faults::is_of_hosts_lane(kind);
    const reference::Transport asked = options.transport.value_or(reference::Transport::kNccl);
    const bool is_of_transport =
        asked == reference::Transport::kNccl ||
        (kind != Kind::kConnectError &&
         (kind != Kind::kCallError || asked == reference::Transport::kStaged));
    const bool is_harmless = faults::is_benign(kind) && !faults::is_store_call(kind);
    const bool is_able = is_harmless || options.capabilities.has(Capability::kRecovery);
    if (is_listed && is_of_lane && is_of_transport && is_able) out = out.with(kind);
  }
  return out;
}

Status parse_faults(std::string_view text, GenerateOptions& options) {
  if (text == "swarm" || text == "none") {
    options.faults =
        text == "none" ? GenerateOptions::Faults::kNone : GenerateOptions::Faults::kSwarm;
    return {};
  }
  FaultKinds kinds;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view word = text.substr(0, comma);
    std::vector<std::string> known{"swarm", "none"};
    bool found = false;
    for (int i = 0; i < faults::kKinds; ++i) {
      const auto kind = static_cast<Kind>(i);
      known.emplace_back(faults::name_of(kind));
      if (word != faults::name_of(kind)) continue;
      kinds = kinds.with(kind);
      found = true;
    }
    if (!found)
      return {Code::kInvalidArgument,
              fmt::format("unknown fault '{}': {}", word, suggestion(word, known))};
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  options.faults = GenerateOptions::Faults::kList;
  options.kinds = kinds;
  return {};
}

}  // namespace lockstep::properties
