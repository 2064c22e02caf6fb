#include "properties/hosts/network_faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "properties/hosts/command.h"
#include "properties/hosts/namespaces.h"

namespace lockstep::properties::hosts {
namespace {

using faults::Fault;
using faults::Kind;
using faults::LinkDirection;
using Json = nlohmann::json;

constexpr std::uint32_t kUsualMtu = 1500;
constexpr std::uint32_t kLeastMtu = 256;
constexpr std::uint32_t kLeastKilobits = 64;

// What nft does with a packet that a fault concerns. "numgen inc" loses the same packets again
// where the packets are the same.
std::string verdict_of(const Fault& fault) {
  const std::uint32_t amount = faults::link_amount(fault);
  switch (fault.kind) {
    case Kind::kNetLoss: {
      const std::uint32_t percent = std::clamp(amount, 1u, 99u);
      return fmt::format("numgen inc mod 100 < {} counter drop", percent);
    }
    case Kind::kNetReset:
      return "tcp flags & (syn | rst) == 0 counter reject with tcp reset";
    case Kind::kNetReject:  // a reset is not answered with another one
      return "tcp flags & rst == 0 counter reject with tcp reset";
    case Kind::kNetHalfOpen:
      return fmt::format("quota over {} bytes counter drop", amount);
    default:
      return "counter drop";
  }
}

bool is_filter(Kind kind) {
  return kind == Kind::kNetPartition || kind == Kind::kNetLoss || kind == Kind::kNetReject ||
         kind == Kind::kNetHalfOpen || kind == Kind::kNetReset || kind == Kind::kRankLeftOut;
}

bool is_relayed(Kind kind) { return kind == Kind::kNetDelay || kind == Kind::kNetCut; }

// Adds up the packets of all counters in the JSON of nft.
std::uint64_t packets_in(const Json& json) {
  std::uint64_t packets = 0;
  if (json.is_object() && json.contains("counter") && json["counter"].contains("packets"))
    return json["counter"]["packets"].get<std::uint64_t>();
  for (const Json& each : json)
    if (each.is_structured()) packets += packets_in(each);
  return packets;
}

Status run(const std::vector<std::string>& arguments, const std::string& input = {}) {
  const Result<std::string> done = run_command(arguments, input);
  return done ? Status() : done.error();
}

// The first number under this key in the JSON of tc or ip.
std::uint64_t number_under(const Json& json, const std::string& key) {
  if (json.is_object() && json.contains(key) && json[key].is_number_unsigned())
    return json[key].get<std::uint64_t>();
  for (const Json& each : json)
    if (each.is_structured())
      if (const std::uint64_t number = number_under(each, key); number != 0) return number;
  return 0;
}

std::uint64_t counted(const std::vector<std::string>& arguments, const std::string& key) {
  const Result<std::string> text = run_command(arguments);
  const Json json = text ? Json::parse(*text, nullptr, false) : Json();
  return number_under(json, key);
}

}  // namespace

bool needs_nft(Kind kind) { return is_filter(kind) || is_relayed(kind); }

Status NetworkFaults::filter(const Active& active) {
  const Fault& fault = active.fault;
  const std::string verdict = verdict_of(fault);
  const bool is_pair = fault.peer != fault.rank;
  const LinkDirection direction = faults::link_direction(fault);
  std::string out;
  std::string in;
  if (direction != LinkDirection::kReceived)
    out = fmt::format("oifname {} {} {}", kDataInterface,
                      is_pair ? "ip daddr " + address_of_(fault.peer) : std::string(), verdict);
  if (direction != LinkDirection::kSent)
    in = fmt::format("iifname {} {} {}", kDataInterface,
                     is_pair ? "ip saddr " + address_of_(fault.peer) : std::string(), verdict);
  return run({"nft", "-f", "-"},
             fmt::format("table inet {} {{\n"
                         "chain out {{ type filter hook output priority 0; {}\n}}\n"
                         "chain in {{ type filter hook input priority 0; {}\n}}\n}}\n",
                         active.table, out, in));
}

void NetworkFaults::prepare(const faults::FaultPlan& plan, std::uint32_t rank) {
  const bool needs_relay =
      std::any_of(plan.faults.begin(), plan.faults.end(),
                  [&](const Fault& each) { return each.rank == rank && is_relayed(each.kind); });
  if (!needs_relay) relay_.reset();
  if (!needs_relay || relay_) return;
  auto started = Relay::start(address_of_(rank));
  no_relay_ = started ? std::string() : started.error().failure().detail;
  if (started) relay_ = std::move(*started);
}

Status NetworkFaults::start(Active& active) {
  const Fault& fault = active.fault;
  const std::uint32_t amount = faults::link_amount(fault);
  if (is_filter(fault.kind)) return filter(active);
  switch (fault.kind) {
    case Kind::kNetBandwidth:
      return run({"tc", "qdisc", "add", "dev", kDataInterface, "root", "tbf", "rate",
                  fmt::format("{}kbit", std::max(amount, kLeastKilobits)), "burst", "16kb",
                  "latency", "400ms"});
    case Kind::kNetMtu:
      return run({"ip", "link", "set", kDataInterface, "mtu",
                  std::to_string(std::clamp(amount, kLeastMtu, kUsualMtu))});
    default:
      if (!relay_) return {Code::kTransport, no_relay_};
      active.relayed =
          relay_->begin(fault, fault.peer == fault.rank ? std::string() : address_of_(fault.peer));
      return {};
  }
}

void NetworkFaults::begin(const Fault& fault) {
  Active active{fault, fmt::format("lockstep{}", tables_++), -1,
                TimedFaults<Active>::end_of(fault)};
  const Status status = start(active);
  faults_.add(std::move(active), status);
}

std::uint64_t NetworkFaults::count(const Active& active) const {
  if (is_filter(active.fault.kind)) {
    const Result<std::string> text =
        run_command({"nft", "-j", "list", "table", "inet", active.table});
    return text ? packets_in(Json::parse(*text, nullptr, false)) : 0;
  }
  if (active.fault.kind == Kind::kNetBandwidth)
    return counted({"tc", "-j", "-s", "qdisc", "show", "dev", kDataInterface}, "overlimits");
  return counted({"ip", "-j", "-s", "link", "show", "dev", kDataInterface}, "packets");
}

FaultReport NetworkFaults::end(const Active& active) {
  const std::uint64_t acted = active.relayed >= 0 ? relay_->end(active.relayed) : count(active);
  FaultReport report{active.fault.kind, acted, acted != 0 ? "" : "no packet met it"};
  if (active.relayed >= 0) return report;
  if (is_filter(active.fault.kind))
    run({"nft", "delete", "table", "inet", active.table}).ignore();
  else if (active.fault.kind == Kind::kNetBandwidth)
    run({"tc", "qdisc", "del", "dev", kDataInterface, "root"}).ignore();
  else
    run({"ip", "link", "set", kDataInterface, "mtu", std::to_string(kUsualMtu)}).ignore();
  return report;
}

Clock::time_point NetworkFaults::end_those_due() {
  return faults_.end_those_due([this](const Active& each) { return end(each); });
}

std::vector<FaultReport> NetworkFaults::end_all() {
  return faults_.end_all([this](const Active& each) { return end(each); });
}

}  // namespace lockstep::properties::hosts
