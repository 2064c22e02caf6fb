#include "properties/hosts/relay.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "properties/hosts/command.h"
#include "properties/hosts/namespaces.h"

namespace lockstep::properties::hosts {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = asio::steady_timer::clock_type;
using faults::Fault;
using faults::Kind;
using faults::LinkDirection;

constexpr int kSocketMark = 76;           // of the relay's own connections, which nft lets pass
constexpr int kOriginalDestination = 80;  // SO_ORIGINAL_DST of linux/netfilter_ipv4.h
constexpr std::size_t kPart = std::size_t{64} << 10;
constexpr std::size_t kMostQueued = std::size_t{16} << 20;
constexpr const char* kTable = "lockstep_relay";

struct Active {
  Fault fault;
  std::string peer;        // empty: all
  std::uint64_t left = 0;  // bytes before a cut
  std::uint64_t acted = 0;
};
using ActiveFaults = std::map<int, Active>;

// One direction of a connection.
class Pump {
 public:
  Pump(tcp::socket& from, tcp::socket& to, std::string peer, LinkDirection direction,
       ActiveFaults& faults, std::function<void()> reset)
      : from_(from),
        to_(to),
        peer_(std::move(peer)),
        direction_(direction),
        faults_(faults),
        reset_(std::move(reset)),
        timer_(from.get_executor()) {}

  template <class Keep>
  void read(Keep keep) {
    if (is_reading_ || has_ended_ || queued_ > kMostQueued) return;
    is_reading_ = true;
    from_.async_read_some(asio::buffer(part_), [this, keep](error_code error, std::size_t bytes) {
      is_reading_ = false;
      if (error && error != asio::error::eof) return reset_();
      has_ended_ = error == asio::error::eof;
      if (!pass(bytes)) return reset_();
      write(keep);
      read(keep);
    });
  }

 private:
  struct Piece {
    Clock::time_point due;
    std::string bytes;  // empty: the end
  };

  bool concerns(const Active& active) const {
    const LinkDirection direction = faults::link_direction(active.fault);
    return (active.peer.empty() || active.peer == peer_) &&
           (direction == LinkDirection::kBoth || direction == direction_);
  }

  // Queues what was read. Returns false where a fault cuts the connection.
  bool pass(std::size_t bytes) {
    Clock::time_point due = Clock::now();
    for (auto& [number, active] : faults_) {
      if (!concerns(active)) continue;
      if (active.fault.kind == Kind::kNetDelay) {
        due += std::chrono::microseconds(faults::link_amount(active.fault));
        active.acted += bytes;
      } else if (active.left < bytes) {
        cut(active);
        return false;
      } else {
        active.left -= bytes;
      }
    }
    if (!queue_.empty()) due = std::max(due, queue_.back().due);
    queue_.push_back({due, std::string(part_.data(), bytes)});
    queued_ += bytes;
    return true;
  }

  // Sends what may still pass, so that the reset comes within a message.
  void cut(Active& active) {
    ++active.acted;
    error_code ignored;
    for (const Piece& each : queue_) to_.write_some(asio::buffer(each.bytes), ignored);
    to_.write_some(asio::buffer(part_.data(), active.left), ignored);
    active.left = ~std::uint64_t{0};  // one connection is enough
  }

  template <class Keep>
  void write(Keep keep) {
    if (is_writing_ || queue_.empty()) return;
    is_writing_ = true;
    timer_.expires_at(queue_.front().due);
    timer_.async_wait([this, keep](error_code error) {
      if (error) return;
      if (queue_.front().bytes.empty()) {
        error_code ignored;
        to_.shutdown(tcp::socket::shutdown_send, ignored);
        return;
      }
      asio::async_write(to_, asio::buffer(queue_.front().bytes),
                        [this, keep](error_code failed, std::size_t bytes) {
                          is_writing_ = false;
                          if (failed) return reset_();
                          queued_ -= bytes;
                          queue_.pop_front();
                          write(keep);
                          read(keep);
                        });
    });
  }

  tcp::socket& from_;
  tcp::socket& to_;
  const std::string peer_;
  const LinkDirection direction_;
  ActiveFaults& faults_;
  const std::function<void()> reset_;
  asio::steady_timer timer_;
  std::array<char, kPart> part_;
  std::deque<Piece> queue_;
  std::size_t queued_ = 0;
  bool is_reading_ = false;
  bool is_writing_ = false;
  bool has_ended_ = false;
};

// A connection that is carried. It lives as long as one of its operations is under way.
class RelayedStream : public std::enable_shared_from_this<RelayedStream> {
 public:
  RelayedStream(tcp::socket near, bool is_outgoing, const std::string& peer, ActiveFaults& faults)
      : near_(std::move(near)),
        far_(near_.get_executor()),
        there_(near_, far_, peer, is_outgoing ? LinkDirection::kSent : LinkDirection::kReceived,
               faults, [this] { reset(); }),
        back_(far_, near_, peer, is_outgoing ? LinkDirection::kReceived : LinkDirection::kSent,
              faults, [this] { reset(); }) {}

  void start(const tcp::endpoint& destination) {
    error_code error;
    far_.open(destination.protocol(), error);
    if (error) return reset();
    ::setsockopt(far_.native_handle(), SOL_SOCKET, SO_MARK, &kSocketMark, sizeof kSocketMark);
    far_.async_connect(destination, [self = shared_from_this()](error_code failed) {
      if (failed) return self->reset();
      self->near_.set_option(tcp::no_delay(true));
      self->far_.set_option(tcp::no_delay(true));
      self->there_.read(self);
      self->back_.read(self);
    });
  }

  // Both ends get a reset, and not an end.
  void reset() {
    error_code ignored;
    for (tcp::socket* each : {&near_, &far_}) {
      if (!each->is_open()) continue;
      each->set_option(asio::socket_base::linger(true, 0), ignored);
      each->close(ignored);
    }
  }

 private:
  tcp::socket near_;
  tcp::socket far_;
  Pump there_;
  Pump back_;
};

}  // namespace

class Relay::Impl {
 public:
  explicit Impl(std::string own_address)
      : own_address_(std::move(own_address)), acceptor_(context_, tcp::endpoint(tcp::v4(), 0)) {
    accept();
    thread_ = std::thread([this] { context_.run(); });
  }
  ~Impl() {
    context_.stop();
    thread_.join();
  }

  std::uint16_t port() const { return acceptor_.local_endpoint().port(); }

  // Runs on the relay's thread.
  template <class Body>
  auto call(Body body) {
    std::packaged_task<decltype(body())()> task(body);
    auto result = task.get_future();
    asio::post(context_, [&task] { task(); });
    return result.get();
  }

  ActiveFaults faults_;
  int next_ = 0;

 private:
  void accept() {
    acceptor_.async_accept([this](error_code error, tcp::socket near) {
      if (error) return;
      carry(std::move(near));
      accept();
    });
  }

  void carry(tcp::socket near) {
    sockaddr_in original{};
    socklen_t bytes = sizeof original;
    error_code error;
    const auto from = near.remote_endpoint(error).address().to_string();
    if (error ||
        ::getsockopt(near.native_handle(), SOL_IP, kOriginalDestination, &original, &bytes) != 0)
      return;
    const auto number = ntohl(original.sin_addr.s_addr);
    const tcp::endpoint to(asio::ip::address_v4(number), ntohs(original.sin_port));
    const bool is_outgoing = from == own_address_;
    const std::string peer = is_outgoing ? to.address().to_string() : from;
    std::make_shared<RelayedStream>(std::move(near), is_outgoing, peer, faults_)->start(to);
  }

  const std::string own_address_;
  asio::io_context context_;
  tcp::acceptor acceptor_;
  std::thread thread_;
};

Relay::Relay(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Relay>> Relay::start(const std::string& own_address) {
  std::unique_ptr<Impl> impl;
  try {
    impl = std::make_unique<Impl>(own_address);
  } catch (const std::exception& error) {
    return failed(
        Status(Code::kTransport, fmt::format("the relay cannot start: {}", error.what())));
  }
  const std::string to = fmt::format("meta mark != {} redirect to :{}", kSocketMark, impl->port());
  const Result<std::string> redirected = run_command(
      {"nft", "-f", "-"},
      fmt::format("table ip {0} {{\n"
                  "chain out {{ type nat hook output priority -100; oifname {1} ip protocol tcp "
                  "{2}\n}}\n"
                  "chain in {{ type nat hook prerouting priority -100; iifname {1} ip protocol tcp "
                  "{2}\n}}\n}}\n",
                  kTable, kDataInterface, to));
  if (!redirected) return failed(redirected.error());
  return std::unique_ptr<Relay>(new Relay(std::move(impl)));
}

Relay::~Relay() { (void)run_command({"nft", "delete", "table", "ip", kTable}); }

int Relay::begin(const Fault& fault, const std::string& peer) {
  return impl_->call([&] {
    impl_->faults_[impl_->next_] = {fault, peer, faults::link_amount(fault), 0};
    return impl_->next_++;
  });
}

std::uint64_t Relay::end(int number) {
  return impl_->call([&] {
    const std::uint64_t acted = impl_->faults_[number].acted;
    impl_->faults_.erase(number);
    return acted;
  });
}

}  // namespace lockstep::properties::hosts
