#include "faults/nccl_net/net_plan.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "faults/nccl_net/net_tables.h"
#include "reducer/base/check.h"

namespace lockstep::faults::net {
namespace {

static_assert(sizeof(lockstep_net_fault) == 88);
static_assert(sizeof(lockstep_net_plan) == 32 + LOCKSTEP_NET_MAX_FAULTS * 88);
static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free);  // processes share them

constexpr std::int64_t kLongestMicroseconds = 3'600'000'000;  // an hour
constexpr std::size_t kLongestName = 250;

using Counter = std::atomic_ref<std::uint64_t>;

Status wrong(const std::string& what) {
  return Status(Code::kInvalidArgument, "net plan: " + what);
}

Status refused(const std::string& action, const std::string& name) {
  const int error = errno;
  const bool is_argument = error == ENOENT || error == EEXIST || error == EACCES;
  std::string advice;
  if (error == ENOENT) advice = ": the runner makes it before it starts the ranks";
  if (error == EEXIST) advice = ": choose another name, or remove what a crashed run left";
  return Status(is_argument ? Code::kInvalidArgument : Code::kTransport,
                "net plan: cannot " + action + " '" + name + "': " + std::strerror(error) + advice);
}

Status check_name(const std::string& name) {
  if (name.size() >= 2 && name.size() <= kLongestName && name[0] == '/' &&
      name.find('/', 1) == std::string::npos)
    return Status();
  return wrong("'" + name + "' is no name: use a slash and then no other, as in /run-7");
}

// Maps the object of that name; `flags` are those of shm_open().
Result<lockstep_net_plan*> map(const std::string& name, int flags) {
  const int descriptor = ::shm_open(name.c_str(), flags | O_RDWR | O_CLOEXEC, 0600);
  if (descriptor < 0) return failed(refused("open", name));
  const bool is_new = (flags & O_CREAT) != 0;
  struct stat status {};
  Status problem;
  if (is_new && ::ftruncate(descriptor, sizeof(lockstep_net_plan)) != 0)
    problem = refused("make room for", name);
  else if (::fstat(descriptor, &status) != 0)
    problem = refused("look at", name);
  else if (status.st_size < static_cast<off_t>(sizeof(lockstep_net_plan)))
    problem = wrong("'" + name + "' has " + std::to_string(status.st_size) + " bytes instead of " +
                    std::to_string(sizeof(lockstep_net_plan)) + ": it holds no plan");
  void* memory = MAP_FAILED;
  if (problem.ok()) {
    memory = ::mmap(nullptr, sizeof(lockstep_net_plan), PROT_READ | PROT_WRITE, MAP_SHARED,
                    descriptor, 0);
    if (memory == MAP_FAILED) problem = refused("map", name);
  }
  ::close(descriptor);
  if (problem.ok()) return static_cast<lockstep_net_plan*>(memory);
  if (is_new) ::shm_unlink(name.c_str());
  return failed(std::move(problem));
}

lockstep_net_fault to_memory(const NetFault& fault) {
  lockstep_net_fault out{};
  out.kind = static_cast<std::int32_t>(fault.kind);
  out.rank = fault.rank;
  out.peer = fault.peer;
  out.end = static_cast<std::int32_t>(fault.end);
  out.connection = fault.connection;
  out.message = fault.message;
  out.messages = fault.messages;
  out.amount = fault.amount;
  out.waits = fault.waits ? 1 : 0;
  return out;
}

NetFault from_memory(const lockstep_net_fault& fault) {
  return NetFault{static_cast<NetKind>(fault.kind),
                  fault.rank,
                  fault.peer,
                  static_cast<End>(fault.end),
                  fault.connection,
                  fault.message,
                  fault.messages,
                  fault.amount,
                  fault.waits != 0};
}

std::string rank_text(int rank) { return rank == LOCKSTEP_NET_ANY ? "any" : std::to_string(rank); }

std::string link_text(const NetFault& fault) {
  return "rank " + rank_text(fault.rank) + (fault.end == End::kSender ? " -> " : " <- ") +
         rank_text(fault.peer);
}

Status check_amount(const NetFault& fault) {
  const std::int64_t amount = fault.amount;
  switch (fault.kind) {
    case NetKind::kDelay:
    case NetKind::kSwap:
      if (amount <= kLongestMicroseconds) break;
      return wrong("an amount of " + std::to_string(amount) + " us is more than an hour");
    case NetKind::kBackPressure:
    case NetKind::kShort:
      if (amount >= 1) break;
      return wrong("an amount of " + std::to_string(amount) + " would do nothing: use 1 or more");
    case NetKind::kError:
    case NetKind::kRefuse:
      if (amount >= 1 && amount <= kLastResult) break;
      return wrong(std::to_string(amount) + " is no error of NCCL: use 1 to 7");
    case NetKind::kStall:
    case NetKind::kClose:
    case NetKind::kFlip: break;
  }
  return Status();
}

}  // namespace

const char* name_of(NetKind kind) {
  switch (kind) {
    case NetKind::kDelay: return "delay";
    case NetKind::kBackPressure: return "back-pressure";
    case NetKind::kStall: return "stall";
    case NetKind::kError: return "error";
    case NetKind::kRefuse: return "refuse";
    case NetKind::kClose: return "close";
    case NetKind::kFlip: return "flip";
    case NetKind::kSwap: return "swap";
    case NetKind::kShort: return "short";
  }
  return "unknown";
}

std::string to_string(const NetFault& fault) {
  std::string text = std::string(name_of(fault.kind)) + ", " + link_text(fault) + ", connection " +
                     rank_text(fault.connection) + ", message " + std::to_string(fault.message);
  if (fault.messages > 1) text += " and the " + std::to_string(fault.messages - 1) + " after it";
  return text;
}

Status check(const NetFault& fault) {
  const auto kind = static_cast<std::int32_t>(fault.kind);
  if (kind < 1 || kind > kNetKinds) return wrong("there is no kind " + std::to_string(kind));
  if (fault.end != End::kSender && fault.end != End::kReceiver)
    return wrong("there is no end " + std::to_string(static_cast<int>(fault.end)));
  if (fault.rank < LOCKSTEP_NET_ANY || fault.peer < LOCKSTEP_NET_ANY ||
      fault.connection < LOCKSTEP_NET_ANY)
    return wrong("a rank, peer or connection is below -1, which means any");
  if (fault.message < 0 || fault.messages < 1)
    return wrong("messages are counted from 0, and 1 or more are concerned");
  if (fault.amount < 0) return wrong("an amount is negative");
  if (fault.end == End::kReceiver &&
      (fault.kind == NetKind::kSwap || fault.kind == NetKind::kShort))
    return wrong(std::string(name_of(fault.kind)) + " is for the sender's end alone");
  return check_amount(fault);
}

NetPlan::NetPlan(std::string name, lockstep_net_plan* memory, bool is_owner)
    : name_(std::move(name)), memory_(memory), is_owner_(is_owner) {}

NetPlan::NetPlan(NetPlan&& other) noexcept
    : name_(std::move(other.name_)),
      memory_(std::exchange(other.memory_, nullptr)),
      is_owner_(std::exchange(other.is_owner_, false)),
      faults_(std::move(other.faults_)) {}

NetPlan::~NetPlan() {
  if (memory_ != nullptr) ::munmap(memory_, sizeof(lockstep_net_plan));
  if (is_owner_) ::shm_unlink(name_.c_str());
}

Result<NetPlan> NetPlan::create(const std::string& name, const std::vector<NetFault>& faults) {
  if (Status status = check_name(name); !status.ok()) return failed(std::move(status));
  if (faults.size() > LOCKSTEP_NET_MAX_FAULTS)
    return failed(wrong(std::to_string(faults.size()) + " faults are more than the " +
                        std::to_string(LOCKSTEP_NET_MAX_FAULTS) + " that fit"));
  for (const NetFault& fault : faults)
    if (Status status = check(fault); !status.ok()) return failed(std::move(status));
  const Result<lockstep_net_plan*> memory = map(name, O_CREAT | O_EXCL);
  if (!memory) return failed(memory.error());
  NetPlan plan(name, *memory, true);
  lockstep_net_plan& out = **memory;
  out.version = LOCKSTEP_NET_PLAN_VERSION;
  out.size = sizeof(lockstep_net_plan);
  out.count = static_cast<std::uint32_t>(faults.size());
  for (std::size_t i = 0; i < faults.size(); ++i) out.faults[i] = to_memory(faults[i]);
  plan.faults_ = faults;
  Counter(out.magic).store(LOCKSTEP_NET_PLAN_MAGIC, std::memory_order_release);
  return plan;
}

Result<NetPlan> NetPlan::attach(const std::string& name) {
  if (Status status = check_name(name); !status.ok()) return failed(std::move(status));
  const Result<lockstep_net_plan*> memory = map(name, 0);
  if (!memory) return failed(memory.error());
  NetPlan plan(name, *memory, false);
  if (Status status = plan.copy_faults(); !status.ok()) return failed(std::move(status));
  return plan;
}

void NetPlan::remove(const std::string& name) { ::shm_unlink(name.c_str()); }

// Other processes share the memory, so this checks a copy and uses only the copy.
Status NetPlan::copy_faults() {
  if (Counter(memory_->magic).load(std::memory_order_acquire) != LOCKSTEP_NET_PLAN_MAGIC)
    return wrong("'" + name_ + "' does not begin like a plan: it is not one, or not finished");
  const std::uint32_t version = memory_->version;
  if (version != LOCKSTEP_NET_PLAN_VERSION)
    return wrong("'" + name_ + "' has version " + std::to_string(version) + ", and this is for " +
                 std::to_string(LOCKSTEP_NET_PLAN_VERSION) +
                 ": use the plug-in and the runner of one build");
  const std::uint32_t size = memory_->size;
  const std::uint32_t count = memory_->count;
  if (size != sizeof(lockstep_net_plan) || count > LOCKSTEP_NET_MAX_FAULTS)
    return wrong("'" + name_ + "' says of itself " + std::to_string(size) + " bytes and " +
                 std::to_string(count) + " faults, which cannot be");
  for (std::uint32_t i = 0; i < count; ++i) {
    lockstep_net_fault raw;
    std::memcpy(&raw, &memory_->faults[i], sizeof raw);
    faults_.push_back(from_memory(raw));
    if (Status status = check(faults_.back()); !status.ok()) {
      status.failure().detail += " (fault " + std::to_string(i) + " of '" + name_ + "')";
      return status;
    }
  }
  return Status();
}

void NetPlan::arm(std::size_t fault) {
  LOCKSTEP_CHECK_LT(fault, faults_.size());
  Counter(memory_->faults[fault].armed).store(1);
}
void NetPlan::disarm(std::size_t fault) {
  LOCKSTEP_CHECK_LT(fault, faults_.size());
  Counter(memory_->faults[fault].armed).store(0);
}
bool NetPlan::is_armed(std::size_t fault) const {
  LOCKSTEP_CHECK_LT(fault, faults_.size());
  return Counter(memory_->faults[fault].armed).load() != 0;
}

std::uint64_t NetPlan::attached() const { return Counter(memory_->attached).load(); }

std::uint64_t NetPlan::fired(std::size_t fault) const {
  LOCKSTEP_CHECK_LT(fault, faults_.size());
  return Counter(memory_->faults[fault].fired).load();
}

std::vector<std::string> NetPlan::unfired() const {
  std::vector<std::string> report;
  for (std::size_t i = 0; i < faults_.size(); ++i) {
    lockstep_net_fault& counters = memory_->faults[i];
    if (Counter(counters.fired).load() > 0) continue;
    const std::uint64_t seen = Counter(counters.seen).load();
    std::string reason;
    if (attached() == 0)
      reason = "no rank took the plan";
    else if (Counter(counters.connections).load() == 0)
      reason = "no connection " + link_text(faults_[i]) +
               (faults_[i].connection > 0 ? " with that number" : "");
    else if (seen <= static_cast<std::uint64_t>(faults_[i].message))
      reason = "the connection carried " + std::to_string(seen) + " messages" +
               (faults_[i].waits ? " while it was armed" : "");
    else if (Counter(counters.idle).load() > 0)
      reason = "its message had nothing to change (no bytes, or no partner)";
    else
      reason = "its message was posted, but nothing came of it before the end";
    report.push_back("fault " + std::to_string(i) + " (" + to_string(faults_[i]) +
                     ") never fired: " + reason);
  }
  return report;
}

void NetPlan::count_attached() { Counter(memory_->attached).fetch_add(1); }
void NetPlan::count_connection(std::size_t fault) {
  Counter(memory_->faults[fault].connections).fetch_add(1);
}
void NetPlan::count_fired(std::size_t fault) { Counter(memory_->faults[fault].fired).fetch_add(1); }
void NetPlan::count_idle(std::size_t fault) { Counter(memory_->faults[fault].idle).fetch_add(1); }

void NetPlan::count_seen(std::size_t fault, std::uint64_t seen) {
  Counter counter(memory_->faults[fault].seen);
  std::uint64_t before = counter.load();
  while (before < seen && !counter.compare_exchange_weak(before, seen)) {
  }
}

}  // namespace lockstep::faults::net
