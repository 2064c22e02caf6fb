#include "faults/nccl_net/context.h"

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "faults/nccl_net/rendezvous.h"

namespace lockstep::faults::net {
namespace {

constexpr std::int64_t kDefaultHandshakeMs = 20'000;
constexpr std::int64_t kLongestHandshakeMs = 3'600'000;

// It is never destroyed, because threads of NCCL may still run when the process ends.
struct Ledger {
  std::atomic<std::uint64_t> listeners{0};
  std::atomic<std::uint64_t> senders{0};
  std::atomic<std::uint64_t> receivers{0};
  std::atomic<std::uint64_t> rejected_peers{0};
  std::atomic<std::uint64_t> sent_messages{0};
  std::atomic<std::uint64_t> sent_bytes{0};
  std::mutex mutex;
  std::string last_warning;  // guarded by mutex
};

Ledger& ledger() {
  static auto* const only = new Ledger;
  return *only;
}

void change(std::atomic<std::uint64_t>& counter, int by) {
  if (by > 0)
    counter.fetch_add(1);
  else
    counter.fetch_sub(1);
}

// Returns the variable as a number from 0 to `limit`, or `otherwise` if it is not set.
Outcome<std::int64_t> number_from(const char* name, std::int64_t otherwise, std::int64_t limit) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return otherwise;
  std::int64_t value = -1;
  const char* const end = text + std::strlen(text);
  const auto [rest, problem] = std::from_chars(text, end, value);
  if (problem != std::errc() || rest != end || value < 0 || value > limit)
    return error_of(kInvalidUsage, std::string(name) + " is '" + text +
                                       "': use a number from 0 to " + std::to_string(limit));
  return value;
}

}  // namespace

void count_listeners(int by) { change(ledger().listeners, by); }
void count_senders(int by) { change(ledger().senders, by); }
void count_receivers(int by) { change(ledger().receivers, by); }
void count_rejected_peer() { ledger().rejected_peers.fetch_add(1); }
void count_sent(std::size_t bytes) {
  ledger().sent_messages.fetch_add(1);
  ledger().sent_bytes.fetch_add(bytes);
}

lockstep_net_counts counts() {
  Ledger& all = ledger();
  return {all.listeners.load(),      all.senders.load(),       all.receivers.load(),
          all.rejected_peers.load(), all.sent_messages.load(), all.sent_bytes.load()};
}

std::string last_warning() {
  std::lock_guard lock(ledger().mutex);
  return ledger().last_warning;
}

Context::Context(Log log) : log_(log) {}
Context::~Context() = default;

Outcome<bool> Context::read_environment() {
  const Outcome<std::int64_t> rank = number_from(LOCKSTEP_NET_RANK, -1, 1'000'000);
  if (!rank) return tl::unexpected(rank.error());
  rank_ = static_cast<int>(*rank);
  const Outcome<std::int64_t> limit =
      number_from(LOCKSTEP_NET_HANDSHAKE_MS, kDefaultHandshakeMs, kLongestHandshakeMs);
  if (!limit) return tl::unexpected(limit.error());
  handshake_limit_ = std::chrono::milliseconds(*limit);
  Outcome<Interface> interface = choose_interface();
  if (!interface) return tl::unexpected(interface.error());
  interface_ = std::move(*interface);
  return true;
}

Outcome<bool> Context::take_plan() {
  const char* name = std::getenv(LOCKSTEP_NET_PLAN);
  if (name == nullptr || *name == '\0') return true;
  if (rank_ < 0)
    return error_of(kInvalidUsage,
                    "there is a fault plan, but not whose rank this is: set " LOCKSTEP_NET_RANK);
  lockstep::Result<NetPlan> plan = NetPlan::attach(name);
  if (!plan) return error_of(kInvalidUsage, plan.error().to_string());
  plan_ = std::make_shared<NetPlan>(std::move(*plan));
  plan_->count_attached();
  inform("rank " + std::to_string(rank_) + " follows the fault plan '" + name + "' of " +
         std::to_string(plan_->faults().size()) + " faults");
  return true;
}

Outcome<std::shared_ptr<Context>> Context::make(Log log) {
  std::shared_ptr<Context> context(new Context(log));
  Outcome<bool> outcome = context->read_environment();
  if (outcome) outcome = context->take_plan();
  if (!outcome) {
    context->warn(outcome.error().text);
    return tl::unexpected(outcome.error());
  }
  context->inform("listens on " + context->interface_.name);
  return context;
}

std::shared_ptr<Context> Context::make_whatever_happens(Log log) {
  std::shared_ptr<Context> context(new Context(log));
  context->usable_ = context->read_environment();
  if (!context->usable_) {
    context->warn(context->usable_.error().text);
    return context;
  }
  if (const Outcome<bool> outcome = context->take_plan(); !outcome)
    context->warn("THE FAULT PLAN IS IGNORED, no fault will fire: " + outcome.error().text);
  return context;
}

void Context::warn(const std::string& text) const {
  {
    std::lock_guard lock(ledger().mutex);
    ledger().last_warning = text;
  }
  if (log_ != nullptr)
    log_(kLogWarning, kLogAll, __FILE__, __LINE__, "NET/Lockstep : %s", text.c_str());
}

void Context::inform(const std::string& text) const {
  if (log_ != nullptr)
    log_(kLogInfo, kLogNet, __FILE__, __LINE__, "NET/Lockstep : %s", text.c_str());
}

int Context::next_connection(int peer) {
  std::lock_guard lock(mutex_);
  return connections_[peer]++;
}

std::uint64_t Context::keep(std::unique_ptr<Connector> connector) {
  std::lock_guard lock(mutex_);
  connectors_[++last_connector_] = std::move(connector);
  return last_connector_;
}

Connector* Context::find(std::uint64_t number) {
  std::lock_guard lock(mutex_);
  const auto found = connectors_.find(number);
  return found != connectors_.end() ? found->second.get() : nullptr;
}

std::unique_ptr<Connector> Context::take(std::uint64_t number) {
  std::lock_guard lock(mutex_);
  auto node = connectors_.extract(number);
  return node.empty() ? nullptr : std::move(node.mapped());
}

}  // namespace lockstep::faults::net
