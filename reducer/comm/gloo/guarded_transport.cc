#include "reducer/comm/gloo/guarded_transport.h"

#include <gloo/transport/tcp/device.h>

#if LOCKSTEP_GLOO_IS_GUARDED
#include <fcntl.h>
#include <gloo/common/error.h>
#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/pair.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <list>
#include <utility>

#include "reducer/base/check.h"
#endif

namespace lockstep {
inline namespace LOCKSTEP_NS {

namespace tcp = ::gloo::transport::tcp;

#if LOCKSTEP_GLOO_IS_GUARDED

namespace {

using Secret = std::array<char, kSecretBytes>;
struct Secrets {
  Secret knock{};   // The end that connects shows it.
  Secret answer{};  // The end that listens shows it.
};
static_assert(sizeof(Secrets) == 2 * kSecretBytes);

// The secrets decide nothing about what is computed, so they need not be reproducible.
Secrets new_secrets() {
  Secrets secrets;
  if (::getentropy(&secrets, sizeof secrets) != 0)
    throw ::gloo::IoException(std::string("no random bytes: ") + std::strerror(errno));
  return secrets;
}

// Takes the same time wherever the secrets differ.
bool is_same(const Secret& one, const Secret& other) {
  int difference = 0;
  for (std::size_t i = 0; i < one.size(); ++i) difference |= one[i] ^ other[i];
  return difference == 0;
}

// The buffer of a new connection has room. If the connection has broken, the next read says so.
void show(int socket, const Secret& secret) {
  (void)::send(socket, secret.data(), secret.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

// The other end of a connection that has not shown all of a secret.
struct Guest {
  enum class Shown : std::uint8_t { kPart, kAll, kNothing };

  int socket = -1;
  Secret shown{};
  std::size_t bytes = 0;

  // Receives what has come. The socket does not block.
  Shown look() {
    LOCKSTEP_CHECK_LE(0, socket);
    while (bytes < shown.size()) {
      const ssize_t count =
          ::recv(socket, shown.data() + bytes, shown.size() - bytes, MSG_DONTWAIT);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Shown::kPart;
      if (count <= 0) return Shown::kNothing;
      bytes += static_cast<std::size_t>(count);
    }
    return Shown::kAll;
  }
};

// All but the constructor and what is public runs with Gloo's mutex of the pair.
class GuardedPair final : public tcp::Pair {
 public:
  // Gloo listens from its constructor on, so somebody may have connected before this object was one
  // of this class: not the peer, which does not have the address yet.
  GuardedPair(tcp::Context* context, tcp::Device* device, int rank,
              std::chrono::milliseconds timeout, const std::function<void()>& before_transfer)
      : tcp::Pair(context, device, rank, timeout),
        before_transfer_(before_transfer),
        own_(new_secrets()) {
    const std::lock_guard<std::mutex> lock(m_);
    if (state_ != LISTENING) {
      signalException("somebody connected before the peer could");
      return;
    }
    // Gloo lets one connection wait, and the system drops others, which come again after a second.
    const bool is_set = ::fcntl(fd_, F_SETFL, O_NONBLOCK) == 0 && ::listen(fd_, kMostGuests) == 0;
    if (!is_set) signalException(std::string("listen: ") + std::strerror(errno));
  }
  // After this the event loop calls no function of this class.
  ~GuardedPair() override {
    const std::lock_guard<std::mutex> lock(m_);
    if (state_ != CLOSED) changeState(CLOSED);
  }

  const Secrets& secrets() const { return own_; }
  void set_secrets_of_peer(const Secrets& secrets) {
    const std::lock_guard<std::mutex> lock(m_);
    peers_ = secrets;
  }

  // As in Gloo, the loop finds an event again that comes while another thread has the lock. That
  // thread may wait for the loop, so the loop must not wait for it.
  void handleEvents(int events) override {
    const std::unique_lock<std::mutex> lock(m_, std::try_to_lock);
    if (!lock) return;
    try {
      if (state_ == LISTENING) return receive_guests();
      if (state_ == CONNECTING) return handleConnecting();
      if (state_ != CONNECTED || !has_authenticated()) return;
      if (before_transfer_) before_transfer_();
      handleReadWrite(events);
    } catch (const std::exception& error) {
      if (state_ != CLOSED)
        signalException("Gloo refuses what came from " + peer().str() + ": " + error.what());
    }
  }

 private:
  void changeState(state next) noexcept override {
    for (const Guest& guest : std::exchange(guests_, {})) send_away(guest);
    tcp::Pair::changeState(next);
    if (next == CONNECTED && is_client_) show(fd_, peers_.knock);
  }

  // The event may be of the port or of any guest. If too many wait, the first one has had the most
  // time to show the knock, which a rank sends at once.
  void receive_guests() {
    int socket = -1;
    while ((socket = ::accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
      guests_.push_back({socket});
      device_->registerDescriptor(socket, EPOLLIN, this);
      if (guests_.size() <= std::size_t{kMostGuests}) continue;
      send_away(guests_.front());
      guests_.pop_front();
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
      return signalException(std::string("accept: ") + std::strerror(errno));
    for (auto guest = guests_.begin(); guest != guests_.end();) {
      const Guest::Shown shown = guest->look();
      if (shown == Guest::Shown::kPart) {
        ++guest;
        continue;
      }
      const Guest gone = *guest;
      guest = guests_.erase(guest);
      if (shown == Guest::Shown::kAll && is_same(gone.shown, own_.knock)) return let_in(gone);
      send_away(gone);
    }
  }

  // From here on it is as if Gloo had accepted the connection itself.
  void let_in(const Guest& peer) {
    device_->unregisterDescriptor(fd_, this);
    ::close(fd_);
    fd_ = peer.socket;
    show(fd_, own_.answer);
    is_authenticated_ = true;
    handleConnected();
  }

  void send_away(const Guest& guest) {
    device_->unregisterDescriptor(guest.socket, this);
    ::close(guest.socket);
  }

  // The end that connects does not wait for the answer before it sends: nothing of the user's is
  // sent before the peer has greeted, which Gloo reads after the answer.
  bool has_authenticated() {
    if (is_authenticated_) return true;
    host_.socket = fd_;
    const Guest::Shown shown = host_.look();
    if (shown == Guest::Shown::kPart) return false;
    is_authenticated_ = shown == Guest::Shown::kAll && is_same(host_.shown, peers_.answer);
    if (!is_authenticated_)
      signalException(shown == Guest::Shown::kAll
                          ? "at " + peer().str() + " is no rank of this group"
                          : "Connection closed by peer " + peer().str());
    return is_authenticated_;
  }

  const std::function<void()>& before_transfer_;
  const Secrets own_;
  Secrets peers_;
  std::list<Guest> guests_;  // Who has come to the port, the first one first.
  Guest host_;               // On the end that connects: what the other end has shown.
  bool is_authenticated_ = false;
};

class GuardedContext final : public tcp::Context {
 public:
  GuardedContext(std::shared_ptr<tcp::Device> device, int own_rank, int ranks,
                 const std::function<void()>& before_transfer)
      : tcp::Context(std::move(device), own_rank, ranks), before_transfer_(before_transfer) {}
  std::unique_ptr<::gloo::transport::Pair>& createPair(int peer) override {
    LOCKSTEP_CHECK_LE(0, peer);
    LOCKSTEP_CHECK_LT(peer, size);
    auto& place = pairs_[static_cast<std::size_t>(peer)];
    place =
        std::make_unique<GuardedPair>(this, device_.get(), peer, getTimeout(), before_transfer_);
    return place;
  }

 private:
  const std::function<void()>& before_transfer_;  // The device has it, which outlives this.
};

class GuardedDevice final : public tcp::Device {
 public:
  GuardedDevice(const std::string& address, std::function<void()> before_transfer)
      : tcp::Device(tcp::CreateDeviceAttr(tcp::attr(address.c_str()))),
        before_transfer_(std::move(before_transfer)) {}
  std::shared_ptr<::gloo::transport::Context> createContext(int rank, int size) override {
    return std::make_shared<GuardedContext>(shared_from_this(), rank, size, before_transfer_);
  }

 private:
  const std::function<void()> before_transfer_;
};

}  // namespace

#endif

std::shared_ptr<::gloo::transport::Device> make_guarded_device(
    const std::string& address, [[maybe_unused]] std::function<void()> before_transfer) {
#if LOCKSTEP_GLOO_IS_GUARDED
  return std::make_shared<GuardedDevice>(address, std::move(before_transfer));
#else
  return tcp::CreateDevice(tcp::attr(address.c_str()));
#endif
}

std::vector<char> invitation_of(::gloo::transport::Pair& pair) {
  std::vector<char> bytes = pair.address().bytes();
#if LOCKSTEP_GLOO_IS_GUARDED
  if (const auto* const guarded = dynamic_cast<const GuardedPair*>(&pair)) {
    const auto* const secrets = reinterpret_cast<const char*>(&guarded->secrets());
    bytes.insert(bytes.end(), secrets, secrets + sizeof(Secrets));
  }
#endif
  return bytes;
}

bool accept_invitation(::gloo::transport::Pair& pair, std::vector<char> invitation) {
  if (invitation.size() != invitation_of(pair).size()) return false;
#if LOCKSTEP_GLOO_IS_GUARDED
  if (auto* const guarded = dynamic_cast<GuardedPair*>(&pair)) {
    Secrets secrets;
    const std::size_t address_bytes = invitation.size() - sizeof secrets;
    std::memcpy(&secrets, invitation.data() + address_bytes, sizeof secrets);
    guarded->set_secrets_of_peer(secrets);
    invitation.resize(address_bytes);
  }
#endif
  pair.connect(invitation);
  return true;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
