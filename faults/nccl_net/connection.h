// Connections: messages from a Sender to a Receiver over one TCP connection, in the order in which
// they were posted, with the faults that a plan has for them.
//
// post() returns a request, or none if kMaxRequests are in flight or a fault holds the message
// back. post() and test() move the data that can move at once, of any request, up to
// kMostBytesATurn; test() returns whether its own request is done. No call waits. The buffer of a
// receive may be larger than the message; a smaller one is an error. A receiver never allocates
// memory by a size that a peer sent: it reads into the posted buffer.
//
// Threads: one at a time for each object. Ownership: the caller owns the data, and must keep it
// alive until the request is done or the connection is closed; requests belong to the connection.
// Failure: the first failure ends the connection. test() of a request that is not done returns its
// code; after that, post() returns it, too. Messages that were done before remain done.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "faults/nccl_net/context.h"
#include "faults/nccl_net/link_faults.h"
#include "faults/nccl_net/socket.h"
#include "faults/nccl_net/wire.h"

namespace lockstep::faults::net {

constexpr std::size_t kMostBytesATurn = std::size_t{8} << 20;

class Connection;

struct Request {
  Connection* owner = nullptr;
  bool is_used = false;
  bool is_done = false;
  // Its turn has begun: the sender may send the message, or it has reached the receiver.
  bool is_begun = false;
  std::int64_t number = 0;
  std::byte* data = nullptr;
  std::size_t size = 0;            // the bytes posted
  std::size_t wire_size = 0;       // the bytes of the payload on the wire
  std::size_t moved = 0;           // the bytes of header and payload
  std::vector<std::byte> altered;  // the payload in place of `data`, if a fault changed it
  Clock::time_point begun_at{};
  bool is_counted = false;    // the fault that holds it back has been counted
  bool is_swap_over = false;  // the swap with the next message is done or abandoned
  std::size_t swapped = 0;    // bytes
};

class Connection {
 public:
  Connection(std::shared_ptr<Context> context, Socket socket, const Link& link);
  virtual ~Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // These return codes for NCCL. `size` of test() may be null.
  int post(void* data, std::size_t size, void** request);
  int test(Request& request, int* done, int* size);

  const Link& link() const { return link_; }

 protected:
  // Prepares a new request before it is visible to others.
  virtual void prepare(Request&) {}
  // Moves data of the oldest request; returns true when the request is done.
  virtual bool advance(Request& request) = 0;
  // Returns the size that test() reports for a request that is done.
  virtual std::size_t told_size(const Request& request) const = 0;

  // Apply the faults that hold back a message, fail it, or end the connection when its turn begins.
  bool is_held(Request& request);
  bool is_delayed(Request& request);
  void count_once(Request& request, const NetFault& fault);
  void count(const NetFault* fault, bool has_changed);  // null: nothing to count

  void fail(int code, const std::string& why);
  void close() { socket_.close(); }
  bool is_failed() const { return failure_ != kSuccess; }
  std::string name_of(const Request& request) const;

  Request* request_numbered(std::int64_t number);  // in flight, or null

  std::shared_ptr<Context> context_;
  Socket socket_;
  const Link link_;
  LinkFaults faults_;
  std::size_t turn_bytes_ = 0;  // the bytes that this turn may still move

 private:
  int post_faults(bool& is_held_back);
  void progress();

  std::array<Request, kMaxRequests> requests_;
  std::deque<Request*> queue_;  // the requests that are not done, oldest first
  std::int64_t next_ = 0;       // the number of the next message
  std::int64_t held_back_ = 0;  // how often the next message was held back
  int failure_ = kSuccess;
  bool is_told_ = false;  // whether the caller knows the failure
};

class Sender final : public Connection {
 public:
  Sender(std::shared_ptr<Context> context, Socket socket, const Link& link);
  ~Sender() override;

 private:
  void prepare(Request& request) override;
  bool advance(Request& request) override;
  std::size_t told_size(const Request& request) const override { return request.size; }

  void alter(Request& request);
  void swap(Request& before, Request& request);
  void count_changes(const Request& request);
  bool waits_for_partner(Request& request);
  bool write(Request& request, std::size_t limit);
  bool close_within(Request& request, const NetFault& fault);
};

class Receiver final : public Connection {
 public:
  Receiver(std::shared_ptr<Context> context, Socket socket, const Link& link);
  ~Receiver() override;

 private:
  bool advance(Request& request) override;
  std::size_t told_size(const Request& request) const override { return request.wire_size; }

  bool read(Request& request, void* data, std::size_t begin, std::size_t end);
  bool read_header(Request& request);

  FrameHeader header_;
};

}  // namespace lockstep::faults::net
