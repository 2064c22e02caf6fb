#include "properties/hosts/controller.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "properties/hosts/store_wire.h"

namespace lockstep::properties::hosts {
namespace {

using std::chrono::milliseconds;

constexpr int kLookForEndMs = 100;

std::string reply(char outcome, std::string_view text = {}) {
  std::string out(1, outcome);
  put_number(out, text.size(), 8);
  return out.append(text);
}

}  // namespace

struct Controller::Request {
  char operation = 0;
  milliseconds wait{0};
  std::string key;
  std::string value;
};

Result<std::unique_ptr<Controller>> Controller::listen(Address address, Secret secret,
                                                       Report report, ControllerLimits limits) {
  Result<Line> listener = listen_on(address);
  if (!listener) return failed(listener.error());
  return std::unique_ptr<Controller>(new Controller(std::move(address), std::move(*listener),
                                                    std::move(secret), std::move(report), limits));
}

Controller::Controller(Address address, Line listener, Secret secret, Report report,
                       ControllerLimits limits)
    : address_(std::move(address)),
      listener_(std::move(listener)),
      secret_(std::move(secret)),
      report_(std::move(report)),
      limits_(limits) {
  acceptor_ = std::thread([this] { accept_all(); });  // which uses all other members
}

Controller::~Controller() {
  {
    const std::scoped_lock lock(mutex_);
    is_closing_ = true;
    changed_.notify_all();
  }
  acceptor_.join();
  {
    const std::scoped_lock lock(mutex_);  // the line of a rank moves under it
    for (Connection& each : connections_) ::shutdown(each.line.fd(), SHUT_RDWR);
  }
  for (Connection& each : connections_) each.thread.join();
}

void Controller::accept_all() {
  while (true) {
    {
      const std::scoped_lock lock(mutex_);
      if (is_closing_) return;
    }
    pollfd entry{listener_.fd(), POLLIN, 0};
    if (::poll(&entry, 1, kLookForEndMs) > 0) accept_one();
    reap();
  }
}

void Controller::reap() {
  connections_.remove_if([](Connection& each) {
    if (!each.is_done) return false;
    each.thread.join();
    return true;
  });
}

void Controller::accept_one() {
  Line line(::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (line.fd() < 0) return;
  bool is_full = connections_.size() >= limits_.connections;
  {
    const std::scoped_lock lock(mutex_);
    is_full = is_full || strangers_ >= limits_.strangers;
    if (!is_full) ++strangers_;
  }
  if (is_full)
    return complain(fmt::format("refused {}: there are too many connections", line.peer()));
  Connection& connection = connections_.emplace_back();
  connection.line = std::move(line);
  try {
    connection.thread = std::thread([this, &connection] { serve(connection); });
  } catch (const std::system_error& error) {
    complain(fmt::format("refused {}: {}", connection.line.peer(), error.what()));
    connections_.pop_back();
    const std::scoped_lock lock(mutex_);
    --strangers_;
  }
}

void Controller::serve(Connection& connection) {
  Line& line = connection.line;
  const std::string peer = line.peer();
  const Result<Greeting> greeting = answer(
      line, secret_, [this](const Greeting& wanted) { return judge(wanted); },
      Clock::now() + limits_.handshake);
  {
    const std::scoped_lock lock(mutex_);
    --strangers_;
  }
  if (greeting && greeting->role != Role::kStore) {
    const std::scoped_lock lock(mutex_);
    ranks_.lines[greeting->rank] = std::move(line);
    changed_.notify_all();
  } else {
    if (!greeting)
      complain(fmt::format("refused {}: {}", peer, greeting.error().failure().detail));
    else if (!meets_fault(faults::Kind::kStoreDead))
      serve_store(line, greeting->generation, peer);
    if (line.fd() >= 0) ::shutdown(line.fd(), SHUT_RDWR);
  }
  connection.is_done = true;
}

// Returns why a peer with the secret is refused, or nothing.
std::string Controller::judge(const Greeting& greeting) {
  const std::scoped_lock lock(mutex_);
  if (greeting.rank >= ranks_.expected)
    return fmt::format("there is no rank {} here: the ranks are 0 to {}", greeting.rank,
                       ranks_.expected == 0 ? 0 : ranks_.expected - 1);
  if (greeting.role == Role::kStore)
    return greeting.generation == generation_
               ? std::string()
               : fmt::format("the store of generation {} is not open: this is generation {}",
                             greeting.generation, generation_);
  bool& is_here = ranks_.is_here[greeting.rank];
  if (is_here) return fmt::format("rank {} is here already", greeting.rank);
  is_here = true;
  return {};
}

Status Controller::read_request(const Line& line, Request& request) const {
  char bytes[kRequestBytes];
  // A rank may ask for nothing as long as it likes.
  LOCKSTEP_RETURN_IF_ERROR(line.read(bytes, 1, Clock::time_point::max()));
  const Clock::time_point deadline = Clock::now() + limits_.request;
  LOCKSTEP_RETURN_IF_ERROR(line.read(bytes + 1, sizeof bytes - 1, deadline));
  request.operation = bytes[0];
  const std::uint64_t most = static_cast<std::uint64_t>(limits_.longest_wait.count());
  request.wait = milliseconds(std::min(number_at(bytes + 1, 8), most));
  const std::uint64_t key_bytes = number_at(bytes + 9, 8);
  const std::uint64_t value_bytes = number_at(bytes + 17, 8);
  if (request.operation != kSet && request.operation != kGet && request.operation != kContains)
    return {Code::kInvalidArgument, "it asked for something that no store does"};
  if (key_bytes > limits_.key_bytes)
    return {Code::kInvalidArgument,
            fmt::format("a key of {} bytes: {} at most", key_bytes, limits_.key_bytes)};
  if (value_bytes > limits_.value_bytes)
    return {Code::kInvalidArgument,
            fmt::format("a value of {} bytes: {} at most", value_bytes, limits_.value_bytes)};
  LOCKSTEP_RETURN_IF_ERROR(line.read_text(request.key, key_bytes, deadline));
  return line.read_text(request.value, value_bytes, deadline);
}

void Controller::serve_store(const Line& line, std::uint64_t generation, const std::string& peer) {
  while (true) {
    Request request;
    const Status got = read_request(line, request);
    if (got.code() == Code::kPeerLost) return;  // a rank that is done closes its line
    if (meets_fault(faults::Kind::kStoreDead)) return;
    be_slow();
    std::string out =
        got.ok() ? carry_out(request, generation) : reply(kRefused, got.failure().detail);
    if (!got.ok()) complain(fmt::format("refused {}: {}", peer, got.failure().detail));
    if (out.empty()) return;
    const Status sent = line.write(out, Clock::now() + limits_.request);
    if (!got.ok() || !sent.ok() || out[0] == kRefused) return;
  }
}

bool Controller::meets_fault(faults::Kind kind) {
  const std::scoped_lock lock(mutex_);
  const auto found = std::find_if(faults_.begin(), faults_.end(), [&](const ActiveFault& each) {
    return each.fault.kind == kind && Clock::now() < each.end;
  });
  if (found == faults_.end()) return false;
  ++found->acted;
  return true;
}

void Controller::be_slow() {
  milliseconds wait{0};
  std::unique_lock lock(mutex_);
  for (ActiveFault& each : faults_) {
    if (each.fault.kind != faults::Kind::kStoreSlow || Clock::now() >= each.end) continue;
    ++each.acted;
    wait =
        std::max(wait, std::chrono::ceil<milliseconds>(std::chrono::microseconds(each.fault.at)));
  }
  if (wait.count() > 0) changed_.wait_for(lock, wait, [this] { return is_closing_; });
}

void Controller::begin_fault(const faults::Fault& fault) {
  const std::scoped_lock lock(mutex_);
  Clock::time_point end = Clock::time_point::max();
  if (fault.duration_us != 0) end = Clock::now() + std::chrono::microseconds(fault.duration_us);
  faults_.push_back({fault, end});
  changed_.notify_all();  // waits for a key end where the store dies
}

std::vector<FaultReport> Controller::end_faults_due() { return end_faults(Clock::now()); }
std::vector<FaultReport> Controller::end_faults() { return end_faults(Clock::time_point::max()); }

std::vector<FaultReport> Controller::end_faults(Clock::time_point due) {
  const std::scoped_lock lock(mutex_);
  std::vector<FaultReport> reports;
  for (const ActiveFault& each : faults_)
    if (each.end <= due)
      reports.push_back(
          {each.fault.kind, each.acted, each.acted != 0 ? "" : "nobody asked the store"});
  std::erase_if(faults_, [&](const ActiveFault& each) { return each.end <= due; });
  return reports;
}

std::string Controller::carry_out(const Request& request, std::uint64_t generation) {
  std::unique_lock lock(mutex_);
  auto found = values_.end();
  const auto is_over = [&] { return is_closing_ || generation_ != generation; };
  const auto is_dead = [&] {
    return std::any_of(faults_.begin(), faults_.end(), [](const ActiveFault& each) {
      return each.fault.kind == faults::Kind::kStoreDead && Clock::now() < each.end;
    });
  };
  const auto is_set = [&] {
    found = values_.find(request.key);
    return is_over() || is_dead() || found != values_.end();
  };
  if (request.operation == kGet && !changed_.wait_for(lock, request.wait, is_set))
    return reply(kTimedOut);
  if (is_over())
    return reply(kRefused, fmt::format("generation {} is over: this is generation {}", generation,
                                       generation_));
  if (is_dead()) return {};  // which closes the connection
  if (request.operation == kGet) return reply(kValue, found->second);
  if (request.operation == kContains) return reply(is_set() ? kYes : kNo);
  return set(request);
}

std::string Controller::set(const Request& request) {
  for (ActiveFault& each : faults_) {
    if (each.fault.kind != faults::Kind::kStoreFull || Clock::now() >= each.end) continue;
    ++each.acted;
    return reply(kRefused, "there is no space left for the value");
  }
  if (values_.contains(request.key)) return reply(kNo);
  const std::uint64_t bytes = request.key.size() + request.value.size();
  if (stored_bytes_ + bytes > limits_.store_bytes)
    return reply(kRefused,
                 fmt::format("the store is full: it takes {} bytes in all", limits_.store_bytes));
  stored_bytes_ += bytes;
  values_.emplace(request.key, request.value);
  changed_.notify_all();
  return reply(kYes);
}

void Controller::complain(const std::string& line) {
  const std::scoped_lock lock(mutex_);
  if (is_closing_ || ++reported_ > limits_.reports) return;
  report_(reported_ < limits_.reports ? line : line + " (later ones are not reported)");
}

std::uint64_t Controller::begin_generation() {
  const std::scoped_lock lock(mutex_);
  values_.clear();
  stored_bytes_ = 0;
  changed_.notify_all();
  return ++generation_;
}

void Controller::expect_ranks(std::uint32_t ranks) {
  const std::scoped_lock lock(mutex_);
  ranks_.expected = std::max(ranks_.expected, ranks);
}

Result<Line> Controller::take_rank(std::uint32_t rank, Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  const auto has_come = [&] { return ranks_.lines.contains(rank); };
  if (!changed_.wait_until(lock, deadline, has_come))
    return failed(Status(Code::kTimeout, fmt::format("rank {} did not connect to {} in time", rank,
                                                     address_.to_string())));
  return std::move(ranks_.lines.extract(rank).mapped());
}

void Controller::release_rank(std::uint32_t rank) {
  const std::scoped_lock lock(mutex_);
  ranks_.lines.erase(rank);
  ranks_.is_here[rank] = false;
}

}  // namespace lockstep::properties::hosts
