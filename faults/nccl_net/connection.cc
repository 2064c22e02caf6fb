#include "faults/nccl_net/connection.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "reducer/base/check.h"

namespace lockstep::faults::net {
namespace {

constexpr auto kSwapWait = std::chrono::seconds(1);

std::chrono::microseconds microseconds_of(const NetFault& fault) {
  return std::chrono::microseconds(fault.amount);
}

// Converts an amount to a number of bytes, at most `most`.
std::size_t bytes_of(const NetFault& fault, std::size_t most) {
  return static_cast<std::size_t>(
      std::min(static_cast<std::uint64_t>(fault.amount), static_cast<std::uint64_t>(most)));
}

void flip(const NetFault& fault, std::byte* data, std::size_t size) {
  if (size == 0) return;
  const std::uint64_t bit = static_cast<std::uint64_t>(fault.amount) % (std::uint64_t{size} * 8);
  data[bit / 8] ^= std::byte{1} << (bit % 8);
}

}  // namespace

Connection::Connection(std::shared_ptr<Context> context, Socket socket, const Link& link)
    : context_(std::move(context)),
      socket_(std::move(socket)),
      link_(link),
      faults_(context_->plan(), link) {
  for (Request& request : requests_) request.owner = this;
  context_->inform("connected: " + to_string(link_));
}

std::string Connection::name_of(const Request& request) const {
  return to_string(link_) + ", message " + std::to_string(request.number);
}

void Connection::fail(int code, const std::string& why) {
  LOCKSTEP_CHECK(code != kSuccess);
  if (is_failed()) return;
  failure_ = code;
  context_->warn(why);
}

int Connection::post_faults(bool& is_held_back) {
  faults_.count_posted(next_ + 1);
  if (const NetFault* fault = faults_.find(NetKind::kRefuse, next_)) {
    faults_.count_fired(*fault);
    fail(static_cast<int>(fault->amount),
         "a fault refuses message " + std::to_string(next_) + " of " + to_string(link_));
    is_told_ = true;
    return failure_;
  }
  const NetFault* fault = faults_.find(NetKind::kBackPressure, next_);
  if (fault != nullptr && held_back_ < fault->amount) {
    if (held_back_++ == 0) faults_.count_fired(*fault);
    is_held_back = true;
  }
  return kSuccess;
}

int Connection::post(void* data, std::size_t size, void** out) {
  *out = nullptr;
  if (is_told_) return failure_;
  const auto slot = std::find_if(requests_.begin(), requests_.end(),
                                 [](const Request& request) { return !request.is_used; });
  if (slot == requests_.end()) return kSuccess;  // the caller tries again later
  bool is_held_back = false;
  if (const int code = post_faults(is_held_back); code != kSuccess) return code;
  if (is_held_back) return kSuccess;
  held_back_ = 0;

  *slot = Request{};
  slot->owner = this;
  slot->is_used = true;
  slot->number = next_++;
  slot->data = static_cast<std::byte*>(data);
  slot->size = size;
  slot->wire_size = size;
  queue_.push_back(&*slot);
  prepare(*slot);
  progress();
  *out = &*slot;
  return kSuccess;
}

int Connection::test(Request& request, int* done, int* size) {
  *done = 0;
  if (!request.is_used || request.owner != this) {
    context_->warn("test() was given a request that is not in flight");
    return kInternalError;
  }
  if (!request.is_done) progress();
  if (!request.is_done) {
    is_told_ = is_failed();
    return failure_;
  }
  *done = 1;
  if (size != nullptr) *size = static_cast<int>(told_size(request));
  request.is_used = false;
  request.altered = {};
  return kSuccess;
}

void Connection::progress() {
  turn_bytes_ = kMostBytesATurn;
  while (!queue_.empty() && !is_failed()) {
    if (!advance(*queue_.front())) break;
    queue_.front()->is_done = true;
    queue_.pop_front();
  }
}

Request* Connection::request_numbered(std::int64_t number) {
  for (Request* request : queue_)
    if (request->number == number) return request;
  return nullptr;
}

void Connection::count_once(Request& request, const NetFault& fault) {
  if (!std::exchange(request.is_counted, true)) faults_.count_fired(fault);
}

bool Connection::is_held(Request& request) {
  if (!std::exchange(request.is_begun, true)) request.begun_at = Clock::now();
  if (const NetFault* fault = faults_.find(NetKind::kError, request.number)) {
    faults_.count_fired(*fault);
    fail(static_cast<int>(fault->amount), "a fault fails " + name_of(request));
    return true;
  }
  const NetFault* fault = faults_.find(NetKind::kStall, request.number);
  if (fault == nullptr) return false;
  count_once(request, *fault);
  return true;
}

bool Connection::is_delayed(Request& request) {
  const NetFault* fault = faults_.find(NetKind::kDelay, request.number);
  if (fault == nullptr || Clock::now() - request.begun_at >= microseconds_of(*fault)) return false;
  count_once(request, *fault);
  return true;
}

void Connection::count(const NetFault* fault, bool has_changed) {
  if (fault == nullptr) return;
  if (has_changed)
    faults_.count_fired(*fault);
  else
    faults_.count_idle(*fault);
}

// --- The sending side --------------------------------------------------------------------------

Sender::Sender(std::shared_ptr<Context> context, Socket socket, const Link& link)
    : Connection(std::move(context), std::move(socket), link) {
  count_senders(+1);
}

Sender::~Sender() { count_senders(-1); }

// NCCL owns the caller's memory, and the plug-in only reads it: a fault changes a copy.
void Sender::alter(Request& request) {
  if (request.altered.empty()) request.altered.assign(request.data, request.data + request.size);
}

void Sender::prepare(Request& request) {
  if (const NetFault* fault = faults_.find(NetKind::kFlip, request.number)) {
    alter(request);
    flip(*fault, request.altered.data(), request.size);
  }
  if (const NetFault* fault = faults_.find(NetKind::kShort, request.number))
    request.wire_size = request.size - bytes_of(*fault, request.size);
  if (faults_.find(NetKind::kSwap, request.number - 1) == nullptr) return;
  Request* const before = request_numbered(request.number - 1);
  if (before != nullptr && !before->is_swap_over && before->moved == 0) swap(*before, request);
}

void Sender::swap(Request& before, Request& request) {
  before.is_swap_over = true;
  before.swapped = std::min(before.size, request.size);
  alter(before);
  alter(request);
  const auto end = before.altered.begin() + static_cast<std::ptrdiff_t>(before.swapped);
  std::swap_ranges(before.altered.begin(), end, request.altered.begin());
}

// A fault has fired only if its bytes were sent.
void Sender::count_changes(const Request& request) {
  count(faults_.find(NetKind::kFlip, request.number), request.size > 0);
  count(faults_.find(NetKind::kShort, request.number), request.size > 0);
  count(faults_.find(NetKind::kSwap, request.number), request.swapped > 0);
}

bool Sender::waits_for_partner(Request& request) {
  const NetFault* fault = faults_.find(NetKind::kSwap, request.number);
  if (fault == nullptr || request.is_swap_over) return false;
  const Clock::duration limit =
      fault->amount > 0 ? Clock::duration(microseconds_of(*fault)) : Clock::duration(kSwapWait);
  if (Clock::now() - request.begun_at < limit) return true;
  request.is_swap_over = true;  // too late for a swap
  return false;
}

bool Sender::advance(Request& request) {
  if (request.moved == 0 && (is_held(request) || is_delayed(request) || waits_for_partner(request)))
    return false;
  if (const NetFault* fault = faults_.find(NetKind::kClose, request.number))
    return close_within(request, *fault);
  if (!write(request, sizeof(FrameHeader) + request.wire_size)) return false;
  count_changes(request);
  return true;
}

bool Sender::close_within(Request& request, const NetFault& fault) {
  const std::size_t bytes = bytes_of(fault, request.wire_size);
  if (!write(request, sizeof(FrameHeader) + bytes)) return false;
  faults_.count_fired(fault);
  fail(kRemoteError, "a fault closes the connection in " + name_of(request));
  close();
  return false;
}

// Writes up to `limit` bytes of header and payload; returns true when they are written.
bool Sender::write(Request& request, std::size_t limit) {
  FrameHeader header;
  header.number = static_cast<std::uint32_t>(request.number);
  header.size = request.wire_size;
  std::byte* const payload = request.altered.empty() ? request.data : request.altered.data();
  while (request.moved < limit && turn_bytes_ > 0) {
    std::array<iovec, 2> parts{};
    std::size_t count = 0;
    if (request.moved < sizeof header)
      parts[count++] = {reinterpret_cast<char*>(&header) + request.moved,
                        sizeof header - request.moved};
    const std::size_t from = std::max(request.moved, sizeof header);
    if (limit > from)
      parts[count++] = {payload + (from - sizeof header), std::min(limit - from, turn_bytes_)};
    const Moved moved = socket_.send({parts.data(), count});
    if (moved.is_broken()) {
      fail(kRemoteError, name_of(request) + " cannot be sent: " + moved.reason());
      close();
      return false;
    }
    if (moved.bytes == 0) return false;
    request.moved += moved.bytes;
    turn_bytes_ -= std::min(turn_bytes_, moved.bytes);
  }
  return request.moved == limit;
}

// --- The receiving side ------------------------------------------------------------------------

Receiver::Receiver(std::shared_ptr<Context> context, Socket socket, const Link& link)
    : Connection(std::move(context), std::move(socket), link) {
  count_receivers(+1);
}

Receiver::~Receiver() { count_receivers(-1); }

// Reads the bytes from `begin` to `end` of the message into `data`; returns true when all have
// arrived.
bool Receiver::read(Request& request, void* data, std::size_t begin, std::size_t end) {
  while (request.moved < end && turn_bytes_ > 0) {
    const Moved moved = socket_.receive(static_cast<char*>(data) + (request.moved - begin),
                                        std::min(end - request.moved, turn_bytes_));
    if (moved.is_broken()) {
      fail(kRemoteError, name_of(request) + " did not come: " + moved.reason());
      close();
      return false;
    }
    if (moved.bytes == 0) return false;
    request.moved += moved.bytes;
    turn_bytes_ -= std::min(turn_bytes_, moved.bytes);
  }
  return request.moved >= end;
}

bool Receiver::read_header(Request& request) {
  if (request.moved >= sizeof header_) return true;
  if (!read(request, &header_, 0, sizeof header_)) return false;
  if (header_.magic != kFrameMagic ||
      header_.number != static_cast<std::uint32_t>(request.number)) {
    fail(kRemoteError, "in place of " + name_of(request) + " came bytes that are no message, or " +
                           "another one");
    close();
    return false;
  }
  if (header_.size > request.size) {
    fail(kInvalidUsage, name_of(request) + " has " + std::to_string(header_.size) +
                            " bytes and does not fit into the " + std::to_string(request.size) +
                            " of its buffer: the ranks disagree about sizes");
    close();
    return false;
  }
  request.wire_size = header_.size;
  return true;
}

bool Receiver::advance(Request& request) {
  if (!read_header(request)) return false;
  if (is_held(request)) return false;
  if (const NetFault* fault = faults_.find(NetKind::kClose, request.number)) {
    faults_.count_fired(*fault);
    fail(kRemoteError, "a fault closes the connection in " + name_of(request));
    close();
    return false;
  }
  if (!read(request, request.data, sizeof header_, sizeof header_ + request.wire_size))
    return false;
  if (is_delayed(request)) return false;
  const NetFault* fault = faults_.find(NetKind::kFlip, request.number);
  if (fault != nullptr) flip(*fault, request.data, request.wire_size);
  count(fault, request.wire_size > 0);
  return true;
}

}  // namespace lockstep::faults::net
