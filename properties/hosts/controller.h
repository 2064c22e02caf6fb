// Controller: the network end of the process that runs cases on ranks anywhere. On one port it has
// the store of the ranks, and takes the lines over which ranks get cases (role kRank of the
// handshake). Each case has a store of its own, its generation.
//
// What it accepts is limited: peers without the secret in number and time, keys and values in
// bytes, waits in time. Whoever breaks a limit, or speaks another protocol, is reported in one
// line, loses the connection, and disturbs nobody else.
//
// Threads: all calls from any thread. It has a thread for each connection.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "faults/plan.h"
#include "properties/hosts/fault_report.h"
#include "properties/hosts/handshake.h"
#include "properties/hosts/line.h"
#include "properties/hosts/secret.h"

namespace lockstep::properties::hosts {

struct ControllerLimits {
  std::chrono::milliseconds handshake{5000};
  std::chrono::milliseconds request{10'000};  // from its first byte to its last one
  std::chrono::milliseconds longest_wait{3'600'000};
  std::size_t strangers = 64;  // connections that have not shown the secret yet
  std::size_t connections = 1024;
  std::uint64_t key_bytes = 4096;
  std::uint64_t value_bytes = std::uint64_t{16} << 20;
  std::uint64_t store_bytes = std::uint64_t{256} << 20;
  std::uint64_t reports = 100;  // lines about refused peers; later ones are counted alone
};

class Controller {
 public:
  // `report` gets one line about each peer that was refused; from any thread, one at a time.
  using Report = std::function<void(const std::string& line)>;
  static Result<std::unique_ptr<Controller>> listen(Address address, Secret secret, Report report,
                                                    ControllerLimits limits = {});
  ~Controller();
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;

  const Address& address() const { return address_; }

  // Begins the next generation with an empty store, and returns its number. Requests of earlier
  // generations are refused from now on.
  std::uint64_t begin_generation();

  // Faults of the store (faults/plan.h): those that are in force act on every request.
  void begin_fault(const faults::Fault& fault);
  // Ends those whose time is over, or all of them, and returns what became of them; `acted` counts
  // requests.
  std::vector<FaultReport> end_faults_due();
  std::vector<FaultReport> end_faults();

  // Ranks from `ranks` on are refused.
  void expect_ranks(std::uint32_t ranks);
  // Waits for the line of a rank, which belongs to the caller then. Until release_rank() no other
  // process can be that rank.
  Result<Line> take_rank(std::uint32_t rank, Clock::time_point deadline);
  void release_rank(std::uint32_t rank);

 private:
  struct Connection {
    Line line;
    std::thread thread;
    std::atomic<bool> is_done{false};
  };
  struct Request;

  Controller(Address address, Line listener, Secret secret, Report report, ControllerLimits limits);
  void accept_all();
  void accept_one();
  void reap();
  void serve(Connection& connection);
  std::string judge(const Greeting& greeting);
  void serve_store(const Line& line, std::uint64_t generation, const std::string& peer);
  Status read_request(const Line& line, Request& request) const;
  std::string carry_out(const Request& request, std::uint64_t generation);
  std::string set(const Request& request);
  void complain(const std::string& line);
  // Whether a fault of this kind is in force; counts that it met a request.
  bool meets_fault(faults::Kind kind);
  std::vector<FaultReport> end_faults(Clock::time_point due);
  // Waits as long as a slow store does.
  void be_slow();

  struct ActiveFault {
    faults::Fault fault;
    Clock::time_point end;
    std::uint64_t acted = 0;
  };

  struct Ranks {
    std::uint32_t expected = 0;
    std::map<std::uint32_t, Line> lines;  // that nobody has taken yet
    std::map<std::uint32_t, bool> is_here;
  };

  Address address_;
  const Line listener_;
  const Secret secret_;
  const Report report_;
  const ControllerLimits limits_;
  std::thread acceptor_;
  std::list<Connection> connections_;  // of the acceptor, and of the destructor after its end

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  bool is_closing_ = false;
  std::uint64_t generation_ = 0;
  std::map<std::string, std::string, std::less<>> values_;
  std::uint64_t stored_bytes_ = 0;
  Ranks ranks_;
  std::size_t strangers_ = 0;
  std::uint64_t reported_ = 0;
  std::vector<ActiveFault> faults_;
};

}  // namespace lockstep::properties::hosts
