#include "properties/subject/hosted_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace lockstep::properties {
namespace {

// The interface fixes these numbers, whatever the order of our own enumerators.
constexpr std::array<std::pair<std::int32_t, Code>, 17> kCodes{{
    {LOCKSTEP_OK, Code::kOk},
    {LOCKSTEP_INVALID_ARGUMENT, Code::kInvalidArgument},
    {LOCKSTEP_DISAGREEMENT, Code::kDisagreement},
    {LOCKSTEP_INCOMPLETE, Code::kIncomplete},
    {LOCKSTEP_READY_TWICE, Code::kReadyTwice},
    {LOCKSTEP_SECOND_BACKWARD, Code::kSecondBackward},
    {LOCKSTEP_GRAPH_FREED, Code::kGraphFreed},
    {LOCKSTEP_USER_FAILURE, Code::kUserFailure},
    {LOCKSTEP_MISMATCH, Code::kMismatch},
    {LOCKSTEP_PEER_LOST, Code::kPeerLost},
    {LOCKSTEP_TIMEOUT, Code::kTimeout},
    {LOCKSTEP_TRANSPORT, Code::kTransport},
    {LOCKSTEP_ABORTED, Code::kAborted},
    {LOCKSTEP_POISONED, Code::kPoisoned},
    {LOCKSTEP_CORRUPTED, Code::kCorrupted},
    {LOCKSTEP_INTERNAL, Code::kInternal},
    {LOCKSTEP_USAGE_CHANGED, Code::kUsageChanged},
}};

constexpr std::array<const char*, 2> kCollectives{"all_reduce", "broadcast"};

// The only negative value with a meaning is -1.
int number(std::int64_t value) { return value < 0 ? kNone : static_cast<int>(value); }

Status broken(std::string detail) {
  return Status(Code::kInternal, "the subject broke its interface: " + std::move(detail));
}

}  // namespace

std::int32_t code_to_c(Code code) {
  for (const auto& [value, ours] : kCodes)
    if (ours == code) return value;
  return LOCKSTEP_INTERNAL;
}

lockstep_error HostedErrors::nothing(std::int64_t pass) {
  lockstep_error error;
  std::memset(&error, 0, sizeof error);
  error.rank = kNone;
  error.pass = pass;
  error.sequence = kNone;
  error.collective = kNone;
  error.bucket = kNone;
  error.suspect = kNone;
  return error;
}

lockstep_error HostedErrors::to_c(const Failure& failure) const {
  lockstep_error error = nothing(failure.pass);
  error.code = code_to_c(failure.code);
  error.rank = failure.rank;
  error.sequence = failure.sequence;
  error.bucket = failure.bucket;
  error.suspect = failure.suspect;
  error.definite = failure.definite ? 1 : 0;
  for (std::size_t i = 0; i < kCollectives.size(); ++i)
    if (failure.collective == kCollectives[i]) error.collective = static_cast<std::int32_t>(i);
  for (const std::string& name : failure.parameters) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end() || error.parameter_count == LOCKSTEP_MAX_PARAMETERS) continue;
    error.parameters[error.parameter_count++] = static_cast<std::uint32_t>(found - names_.begin());
  }
  failure.detail.copy(error.detail, LOCKSTEP_DETAIL_BYTES - 1);
  return error;
}

Status HostedErrors::to_status(std::int32_t code, const lockstep_error& error,
                               int reported_by) const {
  if (code == LOCKSTEP_OK) return {};
  const auto known = std::find_if(kCodes.begin(), kCodes.end(),
                                  [code](const auto& pair) { return pair.first == code; });
  if (known == kCodes.end()) return broken(fmt::format("there is no error code {}", code));
  Failure failure;
  failure.code = known->second;
  failure.rank = number(error.rank);
  failure.reported_by = reported_by;
  failure.pass = error.pass < 0 ? kNone : error.pass;
  failure.sequence = error.sequence < 0 ? kNone : error.sequence;
  failure.bucket = number(error.bucket);
  failure.suspect = number(error.suspect);
  failure.definite = error.definite != 0;
  const auto collective = static_cast<std::size_t>(error.collective);
  if (error.collective >= 0 && collective < kCollectives.size())
    failure.collective = kCollectives[collective];
  if (error.parameter_count > LOCKSTEP_MAX_PARAMETERS)
    return broken(fmt::format("an error names {} parameters", error.parameter_count));
  for (std::uint32_t i = 0; i < error.parameter_count; ++i) {
    if (error.parameters[i] >= names_.size())
      return broken(
          fmt::format("an error names parameter {} of {}", error.parameters[i], names_.size()));
    failure.parameters.push_back(names_[error.parameters[i]]);
  }
  failure.detail.assign(error.detail, ::strnlen(error.detail, LOCKSTEP_DETAIL_BYTES));
  std::replace(failure.detail.begin(), failure.detail.end(), '\n', ' ');
  if (failure.detail.empty()) failure.detail = "the subject gives no detail";
  return failure;
}

}  // namespace lockstep::properties
