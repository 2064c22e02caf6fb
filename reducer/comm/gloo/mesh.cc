#include "reducer/comm/gloo/mesh.h"

#include <exception>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "reducer/base/check.h"
#include "reducer/comm/gloo/gloo_errors.h"
#include "reducer/comm/gloo/sigpipe.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

constexpr platform::Duration kGraceForLostPeer = std::chrono::seconds(1);
constexpr platform::Duration kGraceIfItLeft = std::chrono::seconds(20);  // A rank may stall.
constexpr int kAskEveryoneUpTo = 8;                                      // In ranks.

}  // namespace

// --- Connecting.

Result<std::unique_ptr<Mesh>> Mesh::connect(Store& store, int rank, int size,
                                            const GlooContextOptions& options) {
  if (size < 1 || size > kMaxMeshSize || rank < 0 || rank >= size)
    return failed(Status(Code::kInvalidArgument, "rank " + std::to_string(rank) + " of " +
                                                     std::to_string(size) +
                                                     " is not in a group of 1 to 4096 ranks"));
  if (options.timeout <= platform::Duration(0))
    return failed(Status(Code::kInvalidArgument, "the timeout of a connection must be positive"));
  const WithoutSigpipe guard;  // The loop of Gloo's device and the monitor inherit it.
  std::unique_ptr<Mesh> mesh(new Mesh(rank, size));
  const auto deadline = platform::Deadline::in(options.timeout);
  if (Status status = mesh->open(store, options, deadline); !status.ok())
    return failed(std::move(status));
  return mesh;
}

Status Mesh::open(Store& store, const GlooContextOptions& options, platform::Deadline deadline) {
  LOCKSTEP_CHECK(!connections_.is_connected());
  if (size() == 1) return Status();
  LOCKSTEP_RETURN_IF_ERROR(connections_.meet(store, options, deadline));
  const EventLoop::Hurry hurry(loop());
  try {
    LOCKSTEP_RETURN_IF_ERROR(connections_.connect(store, deadline));
    {
      platform::MutexLock lock(mutex_);
      roll_call_.standings.resize(static_cast<std::size_t>(size()));
    }
    mailbox_.open(*transport());
    open_agreements();
    LOCKSTEP_RETURN_IF_ERROR(connections_.greet(deadline));
    monitor_ = platform::Thread("gloo.monitor", [this] { monitor(); });
  } catch (const std::system_error& error) {
    return connections_.failure(
        Code::kTransport, kNone,
        no_thread("the monitor of a group's connections", error.what()).failure().detail);
  } catch (const std::exception& error) {
    return connections_.failure(code_of_gloo_error(error.what()), kNone,
                                readable_gloo_error(error.what()));
  }
  return Status();
}

void Mesh::open_agreements() {
  const int next = (rank() + 1) % size();
  const int previous = (rank() + size() - 1) % size();
  std::vector<int> neighbours = {next};
  if (previous != next) neighbours.push_back(previous);
  std::vector<int> others;
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank() && peer != next && peer != previous) others.push_back(peer);
  if (size() <= kAskEveryoneUpTo) {
    neighbours.insert(neighbours.end(), others.begin(), others.end());
    others.clear();
  }
  // A rank compares with every other one, and with none of them twice.
  LOCKSTEP_CHECK_EQ(neighbours.size() + others.size() + 1, static_cast<std::size_t>(size()));
  with_neighbours_ = std::make_unique<Agreement>(*transport(), loop(), board_,
                                                 std::move(neighbours), Channel::kNeighbours);
  with_others_ = std::make_unique<Agreement>(*transport(), loop(), board_, std::move(others),
                                             Channel::kOthers);
  with_neighbours_->open();
  with_others_->open();
}

// --- The end.

Mesh::~Mesh() {
  const WithoutSigpipe guard;
  {
    platform::MutexLock lock(mutex_);
    LOCKSTEP_CHECK(!usage_.is_claimed());
    is_leaving_ = true;
    changed_.notify_all();
  }
  if (monitor_.joinable()) {
    // The monitor may just be relaying a peer's failure, in the only notice that a rank sends. Only
    // when the monitor has ended is it known whether this rank leaves without a failure.
    mailbox_.interrupt();
    monitor_.join();
    platform::MutexLock lock(mutex_);
    const bool is_peaceful = cause_.ok();
    lock.unlock();
    if (is_peaceful) mailbox_.send_left();
  }
  std::optional<EventLoop::Hurry> hurry;
  if (connections_.has_loop()) hurry.emplace(loop());
  // Buffers are destroyed before connections, and connections before the device.
  with_neighbours_.reset();
  with_others_.reset();
  mailbox_.close();
  connections_.release();
}

Status Mesh::health() const {
  platform::MutexLock lock(mutex_);
  return cause_.ok() ? loss_ : cause_.status();
}

bool Mesh::fail(const Failure& failure) { return end(failure, failure); }

bool Mesh::abort(const Status& given) {
  const Status cause = cause_of_abort(given, rank());
  return end(cause.failure(), abort_for_peers(cause, rank()));
}

bool Mesh::end(const Failure& failure, const Failure& for_peers) {
  {
    platform::MutexLock lock(mutex_);
    if (!cause_.set(Status(failure))) return false;
    changed_.notify_all();
  }
  const WithoutSigpipe guard;  // A user's thread may be here, through abort().
  if (mailbox_.is_open()) mailbox_.send_failed(for_peers);
  board_.interrupt();
  if (rounds() != nullptr) rounds()->interrupt();
  if (connections_.is_connected()) connections_.close();
  return true;
}

Failure Mesh::explain(const std::exception& error, int waited_for) {
  LOCKSTEP_CHECK_GE(waited_for, kNone);
  LOCKSTEP_CHECK_LT(waited_for, size());
  const std::string text = error.what();
  Failure failure;
  failure.code = code_of_gloo_error(text);
  failure.rank = rank();
  failure.reported_by = rank();
  failure.suspect = waited_for;
  failure.detail = readable_gloo_error(text);
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank() || connections_.error_of(peer) != text) continue;
    failure.suspect = peer;
    const std::optional<Notice> notice = mailbox_.notice_of(peer);
    if (notice && notice->kind == NoticeKind::kFailed) return mailbox_.failure_of(peer, *notice);
    if (notice) failure.detail += "; it had left the group in peace";
    break;
  }
  if (failure.suspect != kNone)
    failure.detail = "rank " + std::to_string(failure.suspect) + ": " + failure.detail;
  return failure;
}

// --- The roll call.

void Mesh::StandingSource::set(std::function<Standing()> standing) {
  platform::MutexLock lock(mutex_);
  standing_ = std::move(standing);
}

Standing Mesh::StandingSource::get() {
  platform::MutexLock lock(mutex_);
  return standing_ ? standing_() : Standing();
}

void Mesh::set_standing(std::function<Standing()> standing) { standing_.set(std::move(standing)); }

// Sends this rank's standing. It never blocks, and runs once: the standing does not change any more
// when a collective makes no progress.
void Mesh::answer_roll_call() {
  {
    platform::MutexLock lock(mutex_);
    if (std::exchange(roll_call_.is_answered, true)) return;
  }
  Standing mine = standing_.get();
  {
    platform::MutexLock lock(mutex_);
    mine.started = usage_.started();
  }
  mine.seal();
  mailbox_.send_standing(mine);
  platform::MutexLock lock(mutex_);
  LOCKSTEP_CHECK_EQ(roll_call_.standings.size(), static_cast<std::size_t>(size()));
  roll_call_.standings[static_cast<std::size_t>(rank())] = mine;
  changed_.notify_all();
}

ChainEnd Mesh::call_roll(platform::Deadline deadline) {
  LOCKSTEP_CHECK_LT(1, size());
  answer_roll_call();
  platform::MutexLock lock(mutex_);
  ChainEnd end;
  changed_.wait(mutex_, deadline, [this, &end]() LOCKSTEP_REQUIRES(mutex_) {
    if (!cause_.ok()) return true;
    // The monitor may still be about to give this rank's standing.
    if (!roll_call_.standings[static_cast<std::size_t>(rank())]) return false;
    end = end_of_chain(roll_call_.standings, rank());
    return end.has_answered || end.rank == kNone;
  });
  return end;
}

// --- Use.

bool Mesh::Usage::claim() { return !std::exchange(is_claimed_, true); }

void Mesh::Usage::release() {
  LOCKSTEP_CHECK(is_claimed_);
  LOCKSTEP_CHECK_EQ(in_flight_, 0);
  is_claimed_ = false;
}

Mesh::Tags Mesh::Usage::begin_operation(bool asks_neighbours, bool asks_others) {
  LOCKSTEP_CHECK(is_claimed_);
  LOCKSTEP_CHECK_GE(in_flight_, 0);
  LOCKSTEP_CHECK(asks_neighbours || !asks_others);  // The neighbours come first: see agreement.h.
  ++in_flight_;
  const Tags tags = next_tags_;
  ++next_tags_.operation;
  if (asks_neighbours) ++next_tags_.neighbours;
  if (asks_others) ++next_tags_.others;
  return tags;
}

void Mesh::Usage::end_operation() {
  LOCKSTEP_CHECK_LT(0, in_flight_);
  --in_flight_;
}

bool Mesh::claim() {
  platform::MutexLock lock(mutex_);
  return usage_.claim();
}

void Mesh::release() {
  set_standing(nullptr);
  platform::MutexLock lock(mutex_);
  usage_.release();
}

Mesh::Tags Mesh::begin_operation(bool asks_neighbours, bool asks_others) {
  platform::MutexLock lock(mutex_);
  return usage_.begin_operation(asks_neighbours, asks_others);
}

void Mesh::end_operation() {
  platform::MutexLock lock(mutex_);
  usage_.end_operation();
  if (usage_.is_idle() && !loss_.ok()) changed_.notify_all();
}

// --- The monitor.

void Mesh::monitor() {
  LOCKSTEP_CHECK(mailbox_.is_open());
  for (;;) {
    std::optional<int> peer;
    try {
      peer = mailbox_.await();
    } catch (const std::exception& error) {
      if (health().ok()) lose(explain(error, kNone));
      return;
    }
    if (!peer) return;
    if (hear(*peer)) continue;
    // Gloo names the latest of several messages that arrived together, so this looks for the
    // others.
    for (int other = 0; other < size(); ++other) hear(other);
  }
}

// Whether there was a new message. If there are both, a standing, which calls the roll or answers,
// is handled before a notice.
bool Mesh::hear(int peer) {
  if (peer < 0 || peer >= size() || peer == rank()) return false;
  if (const std::optional<Standing> standing = mailbox_.new_standing(peer)) {
    {
      platform::MutexLock lock(mutex_);
      LOCKSTEP_CHECK_EQ(roll_call_.standings.size(), static_cast<std::size_t>(size()));
      roll_call_.standings[static_cast<std::size_t>(peer)] = standing;
      changed_.notify_all();
    }
    answer_roll_call();
    return true;
  }
  const std::optional<Notice> notice = mailbox_.new_notice(peer);
  if (notice && notice->kind == NoticeKind::kFailed) fail(mailbox_.failure_of(peer, *notice));
  return notice.has_value();
}

// Handles a peer that is gone without a notice. Operations that do not need it may still succeed,
// here and elsewhere. So a rank with nothing in flight keeps its connections, sends nothing, and
// only refuses to start more. The other ranks notice themselves that the peer is gone.
void Mesh::lose(const Failure& failure) {
  const int peer = failure.suspect;
  const std::optional<Notice> notice = peer == kNone ? std::nullopt : mailbox_.notice_of(peer);
  const bool has_left = notice && notice->kind == NoticeKind::kLeft;
  const auto grace = platform::Deadline::in(has_left ? kGraceIfItLeft : kGraceForLostPeer);
  {
    platform::MutexLock lock(mutex_);
    if (!cause_.ok()) return;
    LOCKSTEP_CHECK(loss_.ok());  // The monitor ends with the first loss.
    loss_ = Status(failure);
    for (int each = 0; rounds() != nullptr && each < size(); ++each)
      if (each != rank() && connections_.error_of(each)) rounds()->lose(each);
    const bool is_over = changed_.wait(mutex_, grace, [this]() LOCKSTEP_REQUIRES(mutex_) {
      return usage_.is_idle() || is_leaving_ || !cause_.ok();
    });
    if (is_over) return;
  }
  fail(failure);
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
