#include "properties/generate/draw_switch.h"

#include <fmt/format.h>

#include <sstream>

#include "properties/case/switched.h"

namespace lockstep::properties {
namespace {

// Returns whether neither Lockstep's reducer nor the subject has the option. Such options take no
// part in the draw, so that the cases of a seed are the same as before they existed.
bool is_foreign(SwitchedOption option, Capabilities capabilities) {
  const std::optional<Capability> needs = needed_for(option);
  return needs && !Capabilities::lockstep().has(*needs) && !capabilities.has(*needs);
}

}  // namespace

Switch draw_switch(Random random, const GenerateOptions& options, const Case& value) {
  std::vector<SwitchedOption> left = options.switched;
  std::erase_if(
      left, [&options](SwitchedOption option) { return is_foreign(option, options.capabilities); });
  const bool has_all = Capabilities::lockstep().without(options.capabilities).empty();
  Case drawn = value;
  while (!left.empty()) {
    const auto at = left.begin() + random.below(static_cast<std::uint32_t>(left.size()));
    drawn.switched = {*at, random.word()};
    left.erase(at);
    if (switched(drawn) && (has_all || missing(drawn, options.capabilities).empty()))
      return drawn.switched;
  }
  return {};
}

Status parse_switched(std::string_view text, GenerateOptions& options) {
  options.switched = switchable_options();
  if (text == "all") return {};
  options.switched.clear();
  std::istringstream names{std::string(text)};
  for (std::string name; std::getline(names, name, ',');) {
    const std::optional<SwitchedOption> option = switchable_option(name);
    if (!option)
      return {Code::kInvalidArgument,
              fmt::format("'{}' is no option that can be switched: give all, or some of {}", name,
                          switchable_names())};
    options.switched.push_back(*option);
  }
  if (options.switched.empty()) return {Code::kInvalidArgument, "give all, or names of options"};
  return {};
}

}  // namespace lockstep::properties
