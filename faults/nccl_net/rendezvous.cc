#include "faults/nccl_net/rendezvous.h"

#include <sys/random.h>

#include <cstring>
#include <utility>

namespace lockstep::faults::net {
namespace {

iovec part_of(const void* data, std::size_t size, std::size_t done) {
  return {const_cast<char*>(static_cast<const char*>(data)) + done, size - done};
}

}  // namespace

Listener::Listener(std::shared_ptr<Context> context, Socket socket, std::uint64_t token)
    : context_(std::move(context)), socket_(std::move(socket)), token_(token) {
  count_listeners(+1);
}

Listener::~Listener() { count_listeners(-1); }

Outcome<std::unique_ptr<Listener>> Listener::open(std::shared_ptr<Context> context,
                                                  void* handle_bytes) {
  if (!context->usable()) return tl::unexpected(context->usable().error());
  Outcome<Socket> socket = Socket::listening(context->interface().address);
  if (!socket) return tl::unexpected(socket.error());
  const Outcome<Address> address = socket->own_address();
  if (!address) return tl::unexpected(address.error());
  // No test depends on this number: it rejects peers that nobody invited.
  std::uint64_t token = 0;
  if (::getrandom(&token, sizeof token, 0) != static_cast<ssize_t>(sizeof token))
    return error_of(kSystemError, "cannot make a token for a listener");
  Handle handle;
  handle.token = token;
  handle.rank = context->rank();
  handle.address_size = address->size;
  std::memcpy(handle.address, &address->bytes, sizeof address->bytes);
  std::memset(handle_bytes, 0, kHandleBytes);
  std::memcpy(handle_bytes, &handle, sizeof handle);
  return std::unique_ptr<Listener>(new Listener(std::move(context), std::move(*socket), token));
}

Listener::Manners Listener::turn_away(const std::string& why) {
  count_rejected_peer();
  context_->warn("turned a connection away: " + why);
  return Manners::kBad;
}

Outcome<bool> Listener::take_in() {
  for (std::size_t i = 0; i < kMostGuests; ++i) {
    Outcome<Socket> socket = socket_.take_in();
    if (!socket) return tl::unexpected(socket.error());
    if (!socket->is_open()) break;
    if (guests_.size() == kMostGuests) {
      turn_away("there were more than " + std::to_string(kMostGuests) + " that said nothing");
      guests_.erase(guests_.begin());
    }
    Guest guest;
    guest.socket = std::move(*socket);
    guest.deadline = Clock::now() + context_->handshake_limit();
    guests_.push_back(std::move(guest));
  }
  return true;
}

Listener::Manners Listener::hear(Guest& guest) {
  if (guest.heard == sizeof guest.hello) return Manners::kReady;
  const Moved moved = guest.socket.receive(reinterpret_cast<char*>(&guest.hello) + guest.heard,
                                           sizeof guest.hello - guest.heard);
  guest.heard += moved.bytes;
  if (moved.is_broken()) return turn_away("it went away before it said who it is");
  if (guest.heard < sizeof guest.hello)
    return Clock::now() < guest.deadline
               ? Manners::kPending
               : turn_away("it did not say in time who it is (" LOCKSTEP_NET_HANDSHAKE_MS ")");
  if (guest.hello.magic != kHelloMagic) return turn_away("it is not the Lockstep plug-in");
  if (guest.hello.token != token_) return turn_away("it wants another listener");
  if (guest.hello.rank < -1) return turn_away("its rank is negative");
  guest.welcome.token = token_;
  return Manners::kReady;
}

Listener::Manners Listener::tell(Guest& guest) {
  iovec part = part_of(&guest.welcome, sizeof guest.welcome, guest.told);
  const Moved moved = guest.socket.send({&part, 1});
  guest.told += moved.bytes;
  if (moved.is_broken()) return turn_away("it went away before it was answered");
  return guest.told == sizeof guest.welcome ? Manners::kReady : Manners::kPending;
}

Outcome<std::unique_ptr<Receiver>> Listener::accept() {
  if (const Outcome<bool> outcome = take_in(); !outcome) {
    context_->warn(outcome.error().text);
    return tl::unexpected(outcome.error());
  }
  for (std::size_t i = 0; i < guests_.size();) {
    Manners manners = hear(guests_[i]);
    if (manners == Manners::kReady) manners = tell(guests_[i]);
    if (manners == Manners::kPending) {
      ++i;
      continue;
    }
    Guest guest = std::move(guests_[i]);
    guests_.erase(guests_.begin() + static_cast<std::ptrdiff_t>(i));
    if (manners == Manners::kBad) continue;
    const Link link{context_->rank(), guest.hello.rank, End::kReceiver,
                    static_cast<int>(guest.hello.connection & 0x7fffffff)};
    return std::make_unique<Receiver>(context_, std::move(guest.socket), link);
  }
  return nullptr;
}

Connector::Connector(Socket socket, const Link& link, std::uint64_t token)
    : socket_(std::move(socket)), link_(link) {
  hello_.token = token;
  hello_.rank = link.rank;
  hello_.connection = static_cast<std::uint32_t>(link.connection);
}

Outcome<std::unique_ptr<Connector>> Connector::begin(Context& context, const Handle& handle) {
  if (!context.usable()) return tl::unexpected(context.usable().error());
  Address address;
  address.size = handle.address_size;
  std::memcpy(&address.bytes, handle.address, sizeof address.bytes);
  if (handle.magic != kHandleMagic || !address.is_valid() || handle.rank < -1)
    return error_of(kInternalError, "connect() was given a handle that no listener made");
  Outcome<Socket> socket = Socket::connecting(address);
  if (!socket) return tl::unexpected(socket.error());
  const Link link{context.rank(), handle.rank, End::kSender, context.next_connection(handle.rank)};
  return std::unique_ptr<Connector>(new Connector(std::move(*socket), link, handle.token));
}

tl::unexpected<Error> Connector::lost(const std::string& why) const {
  return error_of(kRemoteError, to_string(link_) + " was not set up: " + why);
}

Outcome<bool> Connector::say() {
  if (said_ == sizeof hello_) return true;
  iovec part = part_of(&hello_, sizeof hello_, said_);
  const Moved moved = socket_.send({&part, 1});
  if (moved.is_broken()) return lost(moved.reason());
  said_ += moved.bytes;
  return said_ == sizeof hello_;
}

Outcome<bool> Connector::listen() {
  const Moved moved =
      socket_.receive(reinterpret_cast<char*>(&welcome_) + heard_, sizeof welcome_ - heard_);
  if (moved.is_broken()) return lost(moved.reason());
  heard_ += moved.bytes;
  if (heard_ < sizeof welcome_) return false;
  if (welcome_.magic != kWelcomeMagic || welcome_.token != hello_.token)
    return lost("what answers is not the Lockstep plug-in");
  return true;
}

Outcome<std::unique_ptr<Sender>> Connector::advance(const std::shared_ptr<Context>& context) {
  Outcome<bool> is_ready = is_connected_ ? Outcome<bool>(true) : socket_.is_connected();
  if (!is_ready) return lost(is_ready.error().text);
  is_connected_ = *is_ready;
  if (*is_ready) is_ready = say();
  if (is_ready && *is_ready) is_ready = listen();
  if (!is_ready) return tl::unexpected(is_ready.error());
  if (!*is_ready) return nullptr;
  return std::make_unique<Sender>(context, std::move(socket_), link_);
}

}  // namespace lockstep::faults::net
