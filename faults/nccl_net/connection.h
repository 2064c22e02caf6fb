// Connections: messages from a Sender to a Receiver, in the order in which they were posted, over
// one TCP connection; and the faults that a plan has for them.
//
// post() gives a request, or none when kMaxRequests are in flight or a fault holds it back. It and
// test() move what can be moved at once, of any request and no more than kMostBytesATurn; test()
// tells whether its own is done. No call waits. A receive may have more room than the message
// needs; less is an error. A receiver never makes room by what a peer says: it reads into what was
// posted.
//
// Threads: one at a time for each object. Ownership: the caller keeps data until the request is
// done or the connection is closed; requests belong to the connection.
// Failure: the first one ends the connection. test() of a request that is not done tells its code;
// from then on post() does as well. Messages that were done before stay so.
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
  bool is_begun = false;  // its turn has come: at the sender to go, at the receiver it is here
  std::int64_t number = 0;
  std::byte* data = nullptr;
  std::size_t size = 0;            // posted
  std::size_t wire_size = 0;       // of the payload as it travels
  std::size_t moved = 0;           // bytes of header and payload
  std::vector<std::byte> altered;  // the payload in place of `data`, where a fault changed it
  Clock::time_point begun_at{};
  bool is_counted = false;    // the fault that holds it back has been counted
  bool is_swap_over = false;  // with the next message; done, or given up
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
  // What happens to a request when it is made, before others see it.
  virtual void prepare(Request&) {}
  // Moves the oldest request on; true when it is done.
  virtual bool advance(Request& request) = 0;
  // The size that test() tells of a request that is done.
  virtual std::size_t told_size(const Request& request) const = 0;

  // The faults that hold a message, fail it or end the connection when its turn has come.
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
  std::size_t turn_bytes_ = 0;  // what this turn may still move

 private:
  int post_faults(bool& is_held_back);
  void progress();

  std::array<Request, kMaxRequests> requests_;
  std::deque<Request*> queue_;  // those not done, the oldest first
  std::int64_t next_ = 0;       // the number of the next message
  std::int64_t held_back_ = 0;  // how often the next one was
  int failure_ = kSuccess;
  bool is_told_ = false;  // the failure, to the caller
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
