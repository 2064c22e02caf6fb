#include "reducer/comm/nccl/nccl_peers.h"

#include <cstring>
#include <sstream>
#include <string_view>
#include <utility>

#include "reducer/base/check.h"
#include "reducer/comm/checked_store.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

// Begins the message of rank 0 that has the id. No encoded failure begins with it.
constexpr std::string_view kIdFollows = "id:";

}  // namespace

using platform::Deadline;

NcclPeers::NcclPeers(std::shared_ptr<Store> store, int rank, int size, const NcclOptions& options)
    : store_(std::make_shared<CheckedStore>(std::move(store))),
      rank_(rank),
      size_(size),
      options_(options),
      failure_key_(key("failure")) {
  LOCKSTEP_CHECK_LE(0, rank);
  LOCKSTEP_CHECK_LT(rank, size);
}

// --- Connecting.

void NcclPeers::announce_presence() { static_cast<void>(store_->set(key("here/", rank_), "here")); }

Status NcclPeers::send_id(const NcclUniqueId& id, const Status& error) {
  LOCKSTEP_CHECK_EQ(rank_, 0);
  std::string bytes = std::string(kIdFollows).append(id.internal, sizeof id.internal);
  if (!error.ok()) {  // The message says why there is no id.
    Failure failure = error.failure();
    failure.rank = rank_;
    bytes = encode(failure);
  }
  const Result<bool> is_new = store_->set(key("id"), bytes);
  LOCKSTEP_RETURN_IF_ERROR(error);
  if (!is_new) return is_new.error();
  if (*is_new) return {};
  return Status(Code::kInvalidArgument, "another NCCL group was made under the name '" +
                                            options_.name +
                                            "' in this store: give each group its own");
}

Result<NcclUniqueId> NcclPeers::receive_id(Deadline deadline) {
  LOCKSTEP_CHECK(rank_ != 0);
  const Result<std::string> bytes = store_->get(key("id"), deadline);
  if (!bytes) {
    Failure failure = bytes.error().failure();
    failure.suspect = 0;
    return failed(failure);
  }
  NcclUniqueId id{};
  const bool has_id = bytes->starts_with(kIdFollows);
  if (!has_id || bytes->size() != kIdFollows.size() + sizeof id.internal)
    return failed(told(*bytes));
  std::memcpy(id.internal, bytes->data() + kIdFollows.size(), sizeof id.internal);
  return id;
}

Failure NcclPeers::late() {
  Failure failure;
  failure.code = Code::kTimeout;
  const auto limit =
      std::chrono::duration_cast<std::chrono::milliseconds>(options_.connect_timeout);
  failure.detail =
      "the ranks' communicator was not made within " + std::to_string(limit.count()) + " ms";
  for (int peer = 0; peer < size_; ++peer) {
    const Result<bool> is_here = store_->contains(key("here/", peer));
    if (!is_here || *is_here) continue;
    if (failure.suspect == kNone) failure.suspect = peer;
    failure.detail += "; rank " + std::to_string(peer) + " has not come";
  }
  return failure;
}

Status NcclPeers::check_connecting(Deadline deadline) {
  if (platform::now() >= next_notice_) LOCKSTEP_RETURN_IF_ERROR(look_for_failure());
  return deadline.passed() ? Status(late()) : Status();
}

Status NcclPeers::report_unconnected(Status status) {
  LOCKSTEP_CHECK(!status.ok());
  Failure& failure = status.failure();
  // The failure came from a peer.
  if (failure.rank != kNone && failure.rank != rank_) return status;
  failure.rank = rank_;
  failure.reported_by = rank_;
  const Failure own = failure;
  return publish(std::move(status), own);
}

Result<NcclPeers::Remains> NcclPeers::remains_of_all(Remains own, Deadline deadline) {
  const std::string text = std::string(own.can_be_shrunk ? "shrinkable" : "not shrinkable") +
                           (own.is_healthy ? ", healthy" : ", failed");
  if (const Result<bool> is_new = store_->set(key("shrinks/", rank_), text); !is_new)
    return failed(is_new.error());
  Remains all = own;
  for (int peer = 0; peer < size_; ++peer) {
    const Result<std::string> told = store_->get(key("shrinks/", peer), deadline);
    if (!told) {
      Failure failure = told.error().failure();
      failure.suspect = peer;
      return failed(report_unconnected(failure));
    }
    all.can_be_shrunk = all.can_be_shrunk && told->starts_with("shrinkable");
    all.is_healthy = all.is_healthy && told->ends_with("healthy");
  }
  return all;
}

// --- Failures.

// A report that cannot be read is no cause (F2). Its writer has ended the group all the same; of
// more than two ranks NCCL does not say which one that is.
Failure NcclPeers::told(const std::string& bytes) const {
  const bool is_readable = read_failure(bytes, size_).has_value();
  Failure failure = decode_failure(bytes, size_);
  failure.reported_by = rank_;
  if (is_readable) return failure;
  failure.code = Code::kPeerLost;
  if (size_ == 2) failure.suspect = 1 - rank_;
  failure.detail = "a peer has ended the group, and " + failure.detail;
  return failure;
}

Status NcclPeers::check(std::int64_t sequence) {
  LOCKSTEP_CHECK_LE(0, sequence);
  if (platform::now() < next_notice_) return {};
  LOCKSTEP_RETURN_IF_ERROR(look_for_failure());
  return look_for_shrink(sequence);
}

Status NcclPeers::look_for_failure() {
  next_notice_ = platform::now() + options_.notice;
  const Result<bool> is_there = store_->contains(failure_key_);
  if (!is_there || !*is_there) return {};
  const Result<std::string> bytes = store_->get(failure_key_, Deadline::in(options_.grace));
  if (!bytes) return {};
  return told(*bytes);
}

Status NcclPeers::publish(Status own, const Failure& for_peers) {
  LOCKSTEP_CHECK(!own.ok());
  const Result<bool> is_new = store_->set(failure_key_, encode(for_peers));
  if (!is_new || *is_new) return own;
  const Result<std::string> bytes = store_->get(failure_key_, Deadline::in(options_.grace));
  if (!bytes) return own;
  Failure first = told(*bytes);
  const bool is_own = own.failure().rank == rank_ || own.failure().rank == kNone;
  if (first.to_string() == own.failure().to_string() || !is_own) return own;
  // The other ranks saw only a consequence of this failure.
  if (own.failure().definite && !first.definite) {
    own.failure().later.push_back("rank " + std::to_string(rank_) +
                                  " learned: " + first.to_string());
    return own;
  }
  first.later.push_back("rank " + std::to_string(rank_) + ": " + own.to_string());
  return first;
}

// --- Leaving.

void NcclPeers::announce_shrink(std::int64_t entered) {
  LOCKSTEP_CHECK_LE(0, entered);
  static_cast<void>(
      store_->set(key("shrinks"), std::to_string(rank_) + " " + std::to_string(entered)));
}

void NcclPeers::announce_departure(std::int64_t entered) {
  LOCKSTEP_CHECK_LE(0, entered);
  static_cast<void>(store_->set(key("left/", rank_), std::to_string(entered)));
}

// A collective cannot end if a rank has made a smaller group before it.
Status NcclPeers::look_for_shrink(std::int64_t sequence) {
  LOCKSTEP_CHECK_LE(0, sequence);
  const Result<bool> is_there = store_->contains(key("shrinks"));
  if (!is_there || !*is_there) return {};
  const Result<std::string> text = store_->get(key("shrinks"), Deadline::in(options_.grace));
  if (!text) return {};
  std::istringstream words(*text);
  int from = kNone;
  std::int64_t entered = 0;
  if (!(words >> from >> entered) || from < 0 || from >= size_ || entered < 0) return {};
  if (sequence < entered) return {};
  Failure failure;
  failure.code = Code::kAborted;
  failure.rank = from;
  failure.detail =
      "rank " + std::to_string(from) + " makes a smaller group, and does not enter this collective";
  return failure;
}

// A rank that has completed the collective may leave while others are still in it, and holds up
// nobody.
bool NcclPeers::has_left_before(std::int64_t sequence, int peer) {
  LOCKSTEP_CHECK_LE(0, sequence);
  const std::string left = key("left/", peer);
  const Result<bool> is_there = store_->contains(left);
  if (!is_there || !*is_there) return false;
  const Result<std::string> text = store_->get(left, Deadline::in(options_.grace));
  if (!text) return false;
  std::istringstream words(*text);
  std::int64_t entered = 0;
  return words >> entered && entered >= 0 && entered <= sequence;
}

int NcclPeers::first_gone_before(std::int64_t sequence) {
  for (int peer = 0; peer < size_; ++peer)
    if (has_left_before(sequence, peer)) return peer;
  return kNone;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
