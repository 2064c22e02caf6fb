#include "reducer/comm/gloo/mesh_connections.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>

#include "reducer/base/check.h"
#include "reducer/comm/gloo/gloo_errors.h"
#include "reducer/comm/gloo/guarded_transport.h"
#include "reducer/comm/gloo/slots.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

using platform::Deadline;
using std::chrono::milliseconds;

constexpr milliseconds kForEver = std::chrono::hours(24 * 365);

struct Hello {
  std::uint32_t magic = 0x4c534732;  // The bytes spell "LSG2".
  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::int32_t has_memory = 0;  // Whether the rank can use the memory that rank 0 offers.
};

milliseconds left_until(Deadline deadline) {
  if (deadline.is_never()) return kForEver;
  const auto left = std::chrono::ceil<milliseconds>(deadline.remaining());
  return std::clamp(left, milliseconds(1), kForEver);
}

std::string key_of(const char* what, int rank) { return what + std::to_string(rank); }

std::string list_of(const std::vector<int>& ranks) {
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i)
    out += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return out;
}

// Whether the text is what a rank writes to announce itself. The store may hold anything.
bool is_group_size(std::string_view text) {
  const bool is_number =
      !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  return is_number && text.size() <= std::to_string(kMaxMeshSize).size();
}

// All addresses of a rank, one for each of its connections, are in one value of the store; behind
// them rank 0 invites the others to its memory.
void append_address(std::string& out, const std::vector<char>& address) {
  const auto length = static_cast<std::uint32_t>(address.size());
  out.append(reinterpret_cast<const char*>(&length), sizeof length);
  out.append(address.data(), address.size());
}

bool find_address(std::string_view bytes, int index, std::vector<char>& address) {
  LOCKSTEP_CHECK_LE(0, index);
  for (int i = 0; i <= index; ++i) {
    std::uint32_t length = 0;
    if (bytes.size() < sizeof length) return false;
    std::memcpy(&length, bytes.data(), sizeof length);
    bytes.remove_prefix(sizeof length);
    if (bytes.size() < length) return false;
    address.assign(bytes.begin(), bytes.begin() + length);
    bytes.remove_prefix(length);
  }
  return !address.empty();
}

}  // namespace

Failure MeshConnections::failure(Code code, int suspect, std::string detail) const {
  LOCKSTEP_CHECK_GE(suspect, kNone);
  LOCKSTEP_CHECK_LT(suspect, size_);
  LOCKSTEP_CHECK(suspect != rank_);
  Failure failure;
  failure.code = code;
  failure.rank = rank_;
  failure.reported_by = rank_;
  failure.suspect = suspect;
  failure.collective = "connect";
  failure.detail = std::move(detail);
  return failure;
}

Status MeshConnections::meet(Store& store, const GlooContextOptions& options, Deadline deadline) {
  LOCKSTEP_CHECK_LT(1, size_);
  LOCKSTEP_CHECK(device_ == nullptr);
  device_ = options.device;
  if (!options.share_memory) memory_.refuse("the options of the context forbid it");
  if (options.device != nullptr) memory_.refuse("the options of the context name a device");
  if (size_ > HostMemory::kMostRanks)
    memory_.refuse("the group has more than " + std::to_string(HostMemory::kMostRanks) + " ranks");
  if (device_ == nullptr) {
    auto device = shared_device(options.address);
    if (!device) return std::move(device.error());
    device_ = std::move(*device);
  }
  LOCKSTEP_RETURN_IF_ERROR(await_peers(store, deadline));
  loop_.emplace(device_);
  return Status();
}

Status MeshConnections::connect(Store& store, Deadline deadline) {
  LOCKSTEP_CHECK(loop_.has_value());
  LOCKSTEP_RETURN_IF_ERROR(publish(store, deadline));
  LOCKSTEP_RETURN_IF_ERROR(connect_pairs(store, deadline));
  closer_ = transport_->createUnboundBuffer(nullptr, 0);
  return Status();
}

// Waits until every rank has announced itself. A missing rank is noticed here, so nothing of Gloo
// has begun yet.
Status MeshConnections::await_peers(Store& store, Deadline deadline) {
  LOCKSTEP_CHECK(transport_ == nullptr);
  const Result<bool> is_first = store.set(key_of("here/", rank_), std::to_string(size_));
  if (!is_first) return is_first.error();
  if (!*is_first)
    return failure(Code::kInvalidArgument, kNone,
                   "a rank of this number has connected through this store before: use "
                   "a new prefix or a fresh store for each connection");
  std::vector<int> missing;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    Result<std::string> peers_size = store.get(key_of("here/", peer), deadline);
    if (!peers_size && peers_size.error().code() == Code::kTimeout) {
      missing.push_back(peer);
      continue;  // The deadline has passed: the next ones are looked up without waiting.
    }
    if (!peers_size) return std::move(peers_size.error());
    if (!is_group_size(*peers_size))
      return failure(Code::kMismatch, peer,
                     "the store does not hold the size of a group where rank " +
                         std::to_string(peer) +
                         " says that it is there: is the store a fresh one?");
    if (*peers_size != std::to_string(size_))
      return failure(Code::kMismatch, peer,
                     "this rank was started in a group of " + std::to_string(size_) + ", rank " +
                         std::to_string(peer) + " in one of " + *peers_size);
  }
  if (missing.empty()) return Status();
  return failure(Code::kTimeout, missing.front(),
                 list_of(missing) + " did not appear before the deadline");
}

Status MeshConnections::publish(Store& store, Deadline deadline) {
  LOCKSTEP_CHECK(transport_ == nullptr);
  transport_ = device_->createContext(rank_, size_);
  // Gloo waits up to five times this long for one connection.
  transport_->setTimeout(std::max(left_until(deadline) / 5, milliseconds(1)));
  std::string addresses;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) {
      append_address(addresses, {});
      continue;
    }
    append_address(addresses, invitation_of(*transport_->createPair(peer)));
  }
  find_sockets();  // The sockets listen already.
  if (rank_ == 0 && memory_.why_not().empty()) {
    const std::string invitation = memory_.make_and_invite();
    append_address(addresses, {invitation.begin(), invitation.end()});
  }
  const Result<bool> is_set = store.set(key_of("address/", rank_), addresses);
  if (!is_set) return is_set.error();
  return Status();
}

// Connects in the order of ranks, as Gloo does. One end of a pair listens and waits, and the other
// connects without waiting for anybody, so the order cannot deadlock.
Status MeshConnections::connect_pairs(Store& store, Deadline deadline) {
  LOCKSTEP_CHECK(transport_ != nullptr);
  LOCKSTEP_CHECK(closer_ == nullptr);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const std::string name = "rank " + std::to_string(peer);
    const Result<std::string> addresses = store.get(key_of("address/", peer), deadline);
    if (!addresses && addresses.error().code() == Code::kTimeout)
      return failure(Code::kTimeout, peer, name + " appeared, but gave no address");
    if (!addresses) return addresses.error();
    std::vector<char> address;
    if (!find_address(*addresses, rank_, address))
      return failure(Code::kMismatch, peer, name + "'s addresses cannot be read");
    try {
      auto& pair = transport_->getPair(peer);
      const std::size_t bytes = invitation_of(*pair).size();
      if (!accept_invitation(*pair, address))
        return failure(Code::kMismatch, peer,
                       "the store holds " + std::to_string(address.size()) +
                           " bytes as the address of " + name + ", and an address has " +
                           std::to_string(bytes) +
                           ": is the store a fresh one, and do all ranks have the same version?");
    } catch (const std::exception& error) {
      return failure(code_of_gloo_error(error.what()), peer,
                     name + ": " + readable_gloo_error(error.what()));
    }
    if (deadline.passed())
      return failure(Code::kTimeout, peer, "connecting took too long, last to " + name);
    std::vector<char> invitation;
    if (peer == 0 && memory_.why_not().empty()) {
      find_address(*addresses, size_, invitation);
      memory_.open({invitation.data(), invitation.size()});
    }
  }
  find_sockets();
  return Status();
}

void MeshConnections::find_sockets() {
  std::vector<::gloo::transport::Pair*> pairs;
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_) pairs.push_back(transport_->getPair(peer).get());
  sockets_.find(pairs);
}

Status MeshConnections::greet(Deadline deadline) {
  LOCKSTEP_CHECK(closer_ != nullptr);
  const auto ranks = static_cast<std::size_t>(size_);
  Hello mine;
  mine.rank = rank_;
  mine.size = size_;
  mine.has_memory = memory_.is_mapped() ? 1 : 0;
  int without_memory = kNone;
  std::vector<Hello> theirs(ranks);
  const auto sender = transport_->createUnboundBuffer(&mine, sizeof mine);
  std::vector<std::unique_ptr<::gloo::transport::UnboundBuffer>> receivers(ranks);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const auto index = static_cast<std::size_t>(peer);
    receivers[index] = transport_->createUnboundBuffer(&theirs[index], sizeof(Hello));
    receivers[index]->recv(peer, slot_of(Channel::kHello), 0, sizeof(Hello));
    sender->send(peer, slot_of(Channel::kHello), 0, sizeof(Hello));
  }
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const auto index = static_cast<std::size_t>(peer);
    try {
      receivers[index]->waitRecv(nullptr, left_until(deadline));
      sender->waitSend(nullptr, left_until(deadline));
    } catch (const std::exception& error) {
      return failure(
          code_of_gloo_error(error.what()), peer,
          "greeting rank " + std::to_string(peer) + ": " + readable_gloo_error(error.what()));
    }
    const Hello& hello = theirs[index];
    if (hello.magic != mine.magic || hello.rank != peer || hello.size != size_)
      return failure(Code::kMismatch, peer,
                     "the address of rank " + std::to_string(peer) +
                         " leads to something else: is the store a fresh one?");
    if (hello.has_memory == 0 && without_memory == kNone) without_memory = peer;
  }
  memory_.settle(without_memory);
  return Status();
}

// A failed connection throws its own error again when it is used again.
std::optional<std::string> MeshConnections::error_of(int peer) const {
  LOCKSTEP_CHECK(closer_ != nullptr);
  LOCKSTEP_CHECK(peer != rank_);
  try {
    closer_->recv(peer, slot_of(Channel::kProbe), 0, 0);
  } catch (const std::exception& error) {
    return error.what();
  }
  return std::nullopt;
}

// A wait that times out at once makes Gloo close all connections of the context gracefully, and
// pass an exception to most pending transfers.
void MeshConnections::close() {
  LOCKSTEP_CHECK(closer_ != nullptr);
  const EventLoop::Hurry hurry(*loop_);
  try {
    closer_->waitRecv(nullptr, milliseconds(0));
  } catch (const std::exception&) {
  }
}

// This is not Pair::close(), which would discard what the kernel has not sent yet and a peer may
// still be waiting for.
void MeshConnections::release() {
  closer_.reset();
  transport_.reset();
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
