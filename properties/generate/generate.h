// generate: creates a Case from (seed, index), the same on every machine. It is total and rejects
// nothing: every pair gives a case, which is already normalized, at a cost of a few microseconds.
//
// Swarm: each case first draws which features and which kinds of faults it has at all, and then
// uses those often. Most programs are legal. About one in seven may leave parameters unused in
// plain mode, use one twice, or call backward once too often: for these the contract requires an
// error.
//
// Threads: any; there is no state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "properties/case/capabilities.h"
#include "properties/case/case.h"
#include "reducer/base/status.h"

namespace lockstep::properties {

// A set of kinds of faults.
class FaultKinds {
 public:
  constexpr FaultKinds() = default;
  static constexpr FaultKinds all() { return FaultKinds((std::uint64_t{1} << faults::kKinds) - 1); }
  constexpr bool has(faults::Kind kind) const { return (bits_ & bit(kind)) != 0; }
  constexpr FaultKinds with(faults::Kind kind) const { return FaultKinds(bits_ | bit(kind)); }
  constexpr FaultKinds without(faults::Kind kind) const { return FaultKinds(bits_ & ~bit(kind)); }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr bool operator==(const FaultKinds& other) const = default;

 private:
  constexpr explicit FaultKinds(std::uint64_t bits) : bits_(bits) {}
  static constexpr std::uint64_t bit(faults::Kind kind) {
    return std::uint64_t{1} << static_cast<unsigned>(kind);
  }
  std::uint64_t bits_ = 0;
};

struct GenerateOptions {
  enum class Lane : std::uint8_t { kSim, kGloo, kNccl };
  enum class Faults : std::uint8_t { kSwarm, kNone, kList };
  // kGloo: only faults that processes can have, and durations that people can wait for. kNccl:
  // those and the net plug-in's; the parameters are on a GPU, and the cases are small, because each
  // collective takes some 10 to 20 ms.
  Lane lane = Lane::kSim;
  Capabilities capabilities = Capabilities::lockstep();
  // In the simulator: the transport of every case. Without a value, cases draw a transport.
  std::optional<reference::Transport> transport;
  // In the simulator: the policy of every schedule. Without a value, cases draw a policy.
  std::optional<Schedule::Policy> policy;
  // True: forwards and backward calls interleave in every program that can have it. False: in some
  // programs, as the generator draws (interleave.h).
  bool is_interleaved = false;
  Faults faults = Faults::kSwarm;
  // Whether the ranks are on machines of their own, so that faults of the network can be drawn, and
  // those of nodes and of the store where `kinds` lists them.
  bool has_network = false;
  FaultKinds kinds = FaultKinds::all();  // for kList: these kinds, in every case that can have them
  // The most ranks, parameters and steps that a case may have. Even without these limits the
  // generator draws no more than 16 ranks (reach.h), and at most 8 on the real lanes.
  std::uint32_t max_world = reference::kMaxWorld;
  std::uint32_t max_parameters = reference::kMaxParameters;
  std::uint32_t max_steps = 8;
  // Each case gets one of these options to switch in a second run, as far as one can be switched.
  std::vector<SwitchedOption> switched;
};

Case generate(std::uint64_t seed, std::uint64_t index, const GenerateOptions& options = {});

// Returns the kinds of faults that cases with these options can have.
FaultKinds drawable_kinds(const GenerateOptions& options);

// Reads "swarm", "none" or a comma-separated list of kinds into the two fields of the options.
Status parse_faults(std::string_view text, GenerateOptions& options);

// Reads "all", or names of options that can be switched with commas between them.
Status parse_switched(std::string_view text, GenerateOptions& options);

}  // namespace lockstep::properties
