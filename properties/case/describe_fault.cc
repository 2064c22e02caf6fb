// Describes one fault of a case; see describe.h.
#include <fmt/format.h>

#include <array>

#include "properties/case/abort_text.h"
#include "properties/case/describe.h"
#include "properties/case/hook_error.h"
#include "properties/case/words.h"

namespace lockstep::properties {
namespace {

std::string describe_hook_call(const faults::Fault& fault) {
  constexpr std::array<const char*, faults::kHookCalls> kCalls{"start()", "future", "finish()"};
  return fmt::format("its {} {} of step {}", ordinal(fault.site),
                     kCalls[static_cast<std::size_t>(hook_call(fault))], fault.step);
}

// The step, or the reset, in which a fault acts.
std::string step_of(const faults::Fault& fault) {
  if (fault.in_reset && fault.step == 0) return "the construction";
  return fmt::format("{}step {}", fault.in_reset ? "the reset before " : "", fault.step);
}

std::string describe_user_abort(const faults::Fault& fault) {
  constexpr std::array<const char*, faults::kAbortCalls> kCalls{
      "aborts its groups", "aborts its groups from another thread", "aborts its reducers",
      "destroys its reducers and aborts its groups"};
  const std::string later =
      fault.duration_us == 0 ? "" : ", one " + duration(fault.duration_us) + " after the other";
  return fmt::format("the user of rank {} {} with '{}' at the {} place of {}{}", fault.rank,
                     kCalls[static_cast<std::size_t>(abort_call(fault))],
                     lockstep::name_of(user_abort_error(fault)), ordinal(fault.site),
                     step_of(fault), later);
}

// Describes how a fault changes a payload. It changes nothing if payloads are not verified.
std::string describe_payload(const faults::Fault& fault) {
  using faults::Kind;
  const std::string where =
      fmt::format("of what rank {} sends rank {} in its {} exchange of {}", fault.rank, fault.peer,
                  ordinal(fault.site), step_of(fault));
  switch (fault.kind) {
    case Kind::kPayloadFlip:
      return fmt::format("bit {} {} is flipped", fault.at, where);
    case Kind::kPayloadTruncate:
      return fmt::format("all but {} {} is lost", bytes(fault.at), where);
    case Kind::kPayloadSwap:
      return fmt::format("the whole {} changes places with what the next rank is to get", where);
    case Kind::kPayloadStale:
      return fmt::format("the whole {} is what it sent the time before", where);
    case Kind::kPayloadShift:
      return fmt::format("the whole {} is shifted by {}", where,
                         bytes(std::uint64_t{fault.at} + 1));
    default:
      return "an unknown fault";
  }
}

// Describes which packets a fault of the network concerns: "what ranks 0 and 2 exchange".
std::string describe_link(const faults::Fault& fault) {
  const bool is_pair = fault.peer != fault.rank;
  const std::string other = is_pair ? fmt::format("rank {}", fault.peer) : "the others";
  switch (faults::link_direction(fault)) {
    case faults::LinkDirection::kBoth:
      return fmt::format("what rank {} and {} exchange", fault.rank, other);
    case faults::LinkDirection::kSent:
      return fmt::format("what rank {} sends {}", fault.rank, other);
    case faults::LinkDirection::kReceived:
      return fmt::format("what rank {} receives from {}", fault.rank, other);
  }
  return other;
}

std::string describe_network(const faults::Fault& fault) {
  using faults::Kind;
  const std::string link = describe_link(fault);
  const std::uint32_t amount = faults::link_amount(fault);
  const auto what = [&]() -> std::string {
    switch (fault.kind) {
      case Kind::kNetPartition:
        return fmt::format("all packets of {} are dropped", link);
      case Kind::kNetLoss:
        return fmt::format("{} % of the packets of {} are dropped", amount, link);
      case Kind::kNetReset:
        return fmt::format("the connections of {} are reset", link);
      case Kind::kNetReject:
        return fmt::format("the packets of {} are answered with a reset", link);
      case Kind::kNetHalfOpen:
        return fmt::format("after {} the packets of {} are dropped", bytes(amount), link);
      case Kind::kNetBandwidth:
        return fmt::format("rank {} sends at most {} kbit/s", fault.rank, amount);
      case Kind::kNetMtu:
        return fmt::format("packets of rank {} have at most {}", fault.rank, bytes(amount));
      case Kind::kNetDelay:
        return fmt::format("{} arrives {} late", link, duration(amount));
      default:
        return fmt::format("after {} a connection of {} is reset", bytes(amount), link);
    }
  };
  const std::string end =
      fault.duration_us == 0 ? std::string() : " for " + duration(fault.duration_us);
  return fmt::format("{}{}, from rank {}'s {} collective of {} on", what(), end, fault.rank,
                     ordinal(fault.site), step_of(fault));
}

std::string describe_clock(const faults::Fault& fault) {
  return fmt::format("the wall clock of rank {} jumps {} by {:g} s", fault.rank,
                     fault.at % 2 == 0 ? "forward" : "back", fault.at / 2 / 1000.0);
}

// Describes a fault of a node or of the store.
std::string describe_node(const faults::Fault& fault) {
  using faults::Kind;
  const std::uint32_t rank = fault.rank;
  const auto what = [&]() -> std::string {
    switch (fault.kind) {
      case Kind::kNodeStop:
        return fmt::format("rank {}'s process is stopped", rank);
      case Kind::kNodeMemory:
        return fmt::format("rank {}'s process gets at most {} of memory more", rank,
                           bytes(fault.at));
      case Kind::kNodeDescriptors:
        return fmt::format("rank {}'s process gets no more descriptors", rank);
      case Kind::kNodeClock:
        return describe_clock(fault);
      case Kind::kStoreFull:
        return "the store takes no new values";
      case Kind::kStoreDead:
        return "the store is dead";
      case Kind::kStoreSlow:
        return fmt::format("each answer of the store is {} late", duration(fault.at));
      case Kind::kRankReplaced:
        return fmt::format("rank {}'s process exits, and another one joins at the {} recovery",
                           rank, ordinal(fault.at));
      default:
        return fmt::format("rank {} {}, and the others go on without it", rank,
                           fault.at % 2 == 0 ? "is stopped" : "is cut off from all others");
    }
  };
  const std::string end =
      fault.duration_us == 0 ? std::string() : " for " + duration(fault.duration_us);
  const bool at_connect = fault.in_reset && faults::acts_in_connect(fault.kind);
  const std::string where =
      at_connect ? fmt::format("from rank {}'s connecting in {} on", rank, step_of(fault))
                 : fmt::format("from rank {}'s {} collective of {} on", rank, ordinal(fault.site),
                               step_of(fault));
  return fmt::format("{}{}, {}", what(), end, where);
}

}  // namespace

std::string describe(const faults::Fault& fault) {
  using faults::Kind;
  const std::string site = ordinal(fault.site);
  const std::string time = duration(fault.duration_us);
  const std::uint32_t rank = fault.rank;
  const std::string step = step_of(fault);
  switch (fault.kind) {
    case Kind::kMessageDelay:
      return fmt::format("rank {}'s {} message of {} arrives {} late", rank, site, step, time);
    case Kind::kMessageStall:
      return fmt::format("rank {}'s {} message of {} and all after it on that link never arrive",
                         rank, site, step);
    case Kind::kOperationDelay:
      return fmt::format("rank {} begins its {} collective of {} late by {}", rank, site, step,
                         time);
    case Kind::kOperationStall:
      return fmt::format("rank {} never begins its {} collective of {}", rank, site, step);
    case Kind::kOperationError:
      return fmt::format("rank {}'s transport fails at its {} collective of {}", rank, site, step);
    case Kind::kCallError:
      return fmt::format("rank {}'s {} call of NCCL, or for its GPU, in {} fails", rank, site,
                         step);
    case Kind::kLinkReset:
      return fmt::format("the link under rank {}'s {} message of {} is reset", rank, site, step);
    case Kind::kRankExit:
      return fmt::format("rank {}'s process exits at its {} collective of {}", rank, site, step);
    case Kind::kRankPause:
      return fmt::format("rank {} does nothing for {} from its {} collective of {} on", rank, time,
                         site, step);
    case Kind::kNodeThrows:
      return fmt::format("the {} node that rank {} executes in {} throws", site, rank, step);
    case Kind::kSlowThread:
      return fmt::format("rank {}'s engine sleeps for {} at the {} node of {}", rank, time, site,
                         step);
    case Kind::kHookFails:
      if (never_ends(fault))
        return fmt::format("rank {}'s communication hook never completes {}", rank,
                           describe_hook_call(fault));
      return fmt::format("rank {}'s communication hook fails with its own code '{}' in {}", rank,
                         lockstep::name_of(hook_error(fault)), describe_hook_call(fault));
    case Kind::kConnectError:
      return fmt::format("rank {}'s {} call of {} fails while its group connects, before step {}",
                         rank, site, faults::name_of(faults::connect_call(fault)), fault.step);
    case Kind::kMemoryRefused:
      return fmt::format("rank {} is refused memory for its {} request in {}", rank, site, step);
    case Kind::kUserAbort:
      return describe_user_abort(fault);
    case Kind::kStoreDelay:
      return fmt::format("rank {}'s {} call of the store in {} takes {} longer", rank, site, step,
                         time);
    case Kind::kStoreError:
      return fmt::format("rank {}'s store fails from its {} call in {} on", rank, site, step);
    case Kind::kStoreTorn:
      return fmt::format("of the {} value that rank {} writes into the store in {}, only {} arrive",
                         site, rank, step, bytes(fault.at));
    default:
      if (faults::is_of_node(fault.kind)) return describe_node(fault);
      return faults::is_network(fault.kind) ? describe_network(fault) : describe_payload(fault);
  }
}

}  // namespace lockstep::properties
