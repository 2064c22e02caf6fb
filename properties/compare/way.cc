#include "properties/compare/way.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "properties/lane/nccl_gpu.h"
#include "properties/lane/nccl_played.h"
#include "properties/process/child.h"

namespace lockstep::properties {
namespace {

constexpr std::chrono::seconds kTryLimit{60};

Result<NcclApi> load_played(const std::string& library) {
  if (Status status = load_played_nccl(library); !status.ok()) return failed(std::move(status));
  return load_nccl(library);
}

const std::vector<Way>& ways() {
  static const std::vector<Way> all = {
      {"gpu", "on the GPU", [](const std::string& library) { return load_nccl(library); },
       [] { return open_gpu()(); }},
      {kPlayedWay, "host side, device played", load_played, open_played_gpu}};
  return all;
}

// Why the way's device cannot be opened; empty if it can.
std::string problem_of(const Way& way) {
  Child child;
  const Status started = child.start([&way](ChildLine& line) {
    const auto device = way.open();
    line.send(device ? std::string() : device.error().failure().detail);
  });
  if (!started.ok()) return started.failure().detail;
  std::string text;
  switch (child.receive(text, kTryLimit)) {
    case Child::Received::kMessage:
      return text;
    case Child::Received::kNothing:
      return fmt::format("it did not open within {} s", kTryLimit.count());
    default:
      return "the process that opened it " + child.how_lost();
  }
}

}  // namespace

Result<Way> find_way(const std::string& name) {
  std::vector<std::string> names;
  std::vector<std::string> problems;
  for (const Way& way : ways()) {
    names.push_back(way.name);
    if (!name.empty() && way.name != name) continue;
    const std::string problem = problem_of(way);
    if (problem.empty()) return way;
    problems.push_back(fmt::format("{}: {}", way.name, problem));
  }
  if (problems.empty())
    problems.push_back(fmt::format("--run-on {} is not known, and this program has {}", name,
                                   fmt::join(names, ", ")));
  return failed(Status(Code::kInvalidArgument,
                       fmt::format("nothing to run NCCL on: {}", fmt::join(problems, "; "))));
}

}  // namespace lockstep::properties
