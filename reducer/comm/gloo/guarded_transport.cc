#include "reducer/comm/gloo/guarded_transport.h"

#include <gloo/common/error.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <system_error>
#include <utility>

#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

namespace tcp = ::gloo::transport::tcp;

static_assert(sizeof(GuardedPair::Secrets) == 32);

// The secrets decide nothing about what is computed, so they need not be reproducible.
GuardedPair::Secrets new_secrets() {
  GuardedPair::Secrets secrets;
  if (::getentropy(&secrets, sizeof secrets) != 0)
    throw std::system_error(errno, std::generic_category(), "no random bytes for a connection");
  return secrets;
}

// Takes the same time wherever the secrets differ.
bool is_same(const GuardedPair::Secret& one, const GuardedPair::Secret& other) {
  unsigned difference = 0;
  for (std::size_t i = 0; i < one.size(); ++i)
    difference |= static_cast<unsigned char>(one[i]) ^ static_cast<unsigned char>(other[i]);
  return difference == 0;
}

}  // namespace

// Gloo listens from its constructor on, so a connection may have come before this object was one of
// this class. It is not that of the peer, who does not have the address yet.
GuardedPair::GuardedPair(tcp::Context* context, tcp::Device* device, int rank,
                         std::chrono::milliseconds timeout)
    : tcp::Pair(context, device, rank, timeout), own_(new_secrets()) {
  const std::lock_guard<std::mutex> lock(m_);
  if (state_ != LISTENING && state_ != CLOSED) refuse("somebody connected before the peer could");
}

// The event loop calls no function of this class after this.
GuardedPair::~GuardedPair() {
  const std::lock_guard<std::mutex> lock(m_);
  if (state_ != CLOSED) tcp::Pair::changeState(CLOSED);
}

void GuardedPair::set_secrets_of_peer(const Secrets& secrets) {
  const std::lock_guard<std::mutex> lock(m_);
  peers_ = secrets;
}

// What Gloo refuses outside of handleReadWrite() is refused here. If another thread holds the lock,
// the event loop finds the same event at its next turn.
void GuardedPair::handleEvents(int events) {
  try {
    tcp::Pair::handleEvents(events);
  } catch (const std::exception& error) {
    const std::unique_lock<std::mutex> lock(m_, std::try_to_lock);
    if (lock && state_ != CLOSED) refuse(error.what());
  }
}

void GuardedPair::handleReadWrite(int events) {
  try {
    if (!is_authenticated_) authenticate();
    if (is_authenticated_ && state_ == CONNECTED) transfer(events);
  } catch (const std::exception& error) {
    if (state_ != CLOSED)
      refuse(std::string("Gloo refuses what the peer has sent: ") + error.what());
  }
}

void GuardedPair::changeState(state next) noexcept {
  tcp::Pair::changeState(next);
  if (next == CONNECTED && is_client_) send_secret(peers_.knock);
}

void GuardedPair::waitUntilConnected(std::unique_lock<std::mutex>& lock, bool use_timeout) {
  const auto is_over = [this] {
    throwIfException();
    return state_ == CLOSED || (state_ == CONNECTED && is_authenticated_);
  };
  waitUntil(is_over, lock, use_timeout);
}

void GuardedPair::authenticate() {
  if (!receive_secret()) return;
  if (!is_same(received_, is_client_ ? peers_.answer : own_.knock))
    return refuse("the connection is not that of a rank of this group");
  if (!is_client_) send_secret(own_.answer);
  is_authenticated_ = true;
  cv_.notify_all();
}

// Returns whether all of it has come. The socket does not block.
bool GuardedPair::receive_secret() {
  while (received_bytes_ < received_.size()) {
    const ssize_t count = ::recv(fd_, received_.data() + received_bytes_,
                                 received_.size() - received_bytes_, MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (count <= 0) {
      refuse(count == 0 ? "Connection closed by peer " + peer().str()
                        : "Read error " + peer().str() + ": " + std::strerror(errno));
      return false;
    }
    received_bytes_ += static_cast<std::size_t>(count);
  }
  return true;
}

// The buffer of a new connection has room. If the connection has broken, the next read says so.
void GuardedPair::send_secret(const Secret& secret) const noexcept {
  static_cast<void>(::send(fd_, secret.data(), secret.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
}

void GuardedPair::refuse(const std::string& why) { signalException(why); }

std::unique_ptr<::gloo::transport::Pair>& GuardedContext::createPair(int peer) {
  LOCKSTEP_CHECK_LE(0, peer);
  LOCKSTEP_CHECK_LT(peer, size);
  auto& place = pairs_[static_cast<std::size_t>(peer)];
  place = make_pair(peer);
  return place;
}

std::unique_ptr<GuardedPair> GuardedContext::make_pair(int peer) {
  return std::make_unique<GuardedPair>(this, device_.get(), peer, getTimeout());
}

std::shared_ptr<::gloo::transport::Context> GuardedDevice::createContext(int rank, int size) {
  return std::make_shared<GuardedContext>(shared_from_this(), rank, size);
}

std::vector<char> invitation_of(::gloo::transport::Pair& pair) {
  std::vector<char> bytes = pair.address().bytes();
  if (const auto* const guarded = dynamic_cast<const GuardedPair*>(&pair)) {
    const auto* const secrets = reinterpret_cast<const char*>(&guarded->secrets());
    bytes.insert(bytes.end(), secrets, secrets + sizeof(GuardedPair::Secrets));
  }
  return bytes;
}

bool accept_invitation(::gloo::transport::Pair& pair, const std::vector<char>& invitation) {
  if (invitation.size() != invitation_of(pair).size()) return false;
  std::vector<char> address = invitation;
  if (auto* const guarded = dynamic_cast<GuardedPair*>(&pair)) {
    GuardedPair::Secrets secrets;
    address.resize(address.size() - sizeof secrets);
    std::memcpy(&secrets, invitation.data() + address.size(), sizeof secrets);
    guarded->set_secrets_of_peer(secrets);
  }
  pair.connect(address);
  return true;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
