#include "faults/sim/process_group.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "faults/sim/arithmetic.h"
#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace simulated {

namespace {

constexpr std::size_t kFirstQueue = 8;

std::string text_of(const Header& header) {
  std::string out = name_of(header.op);
  out += " of " + std::to_string(header.count) + " " + name_of(header.dtype);
  if (header.op == Op::kBroadcast) out += " from rank " + std::to_string(header.root);
  if (header.pass != kNone) out += ", pass " + std::to_string(header.pass);
  if (header.bucket != kNone) out += ", bucket " + std::to_string(header.bucket);
  out += ", sequence " + std::to_string(header.sequence);
  if (header.verify) out += ", verified";
  if (header.reducer_id > 0) out += ", reducer " + std::to_string(header.reducer_id);
  return out;
}

Header header_of(const Collective& collective, std::int64_t sequence) {
  Header header;
  header.op = collective.op;
  header.dtype = collective.dtype;
  header.reduction = collective.reduction;
  header.verify = collective.verify;
  header.root = collective.root;
  header.bucket = collective.bucket;
  header.pass = collective.pass;
  header.sequence = sequence;
  header.count = collective.count;
  header.reducer_id = collective.reducer_id;
  return header;
}

Duration add(Duration now, Duration span) {
  return span > Duration::max() - now ? Duration::max() : now + span;
}

}  // namespace

std::unique_ptr<SimProcessGroup> SimProcessGroup::join(SimNetwork& network, std::int64_t generation,
                                                       std::span<const std::uint32_t> members,
                                                       std::uint32_t world_rank,
                                                       const GroupOptions& options) {
  const auto self = std::find(members.begin(), members.end(), world_rank);
  LOCKSTEP_CHECK(self != members.end());
  Mesh& mesh = network.mesh(generation, members);
  const auto rank = static_cast<int>(self - members.begin());
  mesh.attach(rank);
  std::unique_ptr<SimProcessGroup> group(new SimProcessGroup(network, mesh, rank, options));
  const std::string name =
      "rank " + std::to_string(world_rank) + " group " + std::to_string(generation);
  group->worker_ =
      network.scheduler().spawn(name, world_rank, [it = group.get()] { it->work_off(); });
  mesh.set_worker(rank, group->worker_);
  return group;
}

SimProcessGroup::SimProcessGroup(SimNetwork& network, Mesh& mesh, int rank,
                                 const GroupOptions& options)
    : network_(network),
      mesh_(mesh),
      rank_(rank),
      world_rank_(mesh.world_rank(rank)),
      options_(options) {
  LOCKSTEP_CHECK(options.timeout > Duration(0));
  queue_.entries.resize(kFirstQueue);
  idle_.what = "a collective to be started";
}

SimProcessGroup::~SimProcessGroup() {
  if (simulation::Scheduler::running() == nullptr) return;
  touch_state(simulation::Access::kWrite);
  if (queue_.count > 0) abort(Status(Code::kAborted, "the process group was destroyed"));
  is_closing_ = true;
  network_.scheduler().wake_all(idle_);
  network_.scheduler().join(worker_);
  mesh_.close(rank_);
}

bool SimProcessGroup::can_reduce(DType dtype) const { return can_sum(dtype); }

Status SimProcessGroup::check(const Collective& collective) const {
  if (collective.op == Op::kAllReduceSum && !can_sum(collective.dtype))
    return Status(Code::kInvalidArgument,
                  std::string("the group cannot sum ") + name_of(collective.dtype));
  return check_arguments(collective, size());
}

Status SimProcessGroup::start(const Collective& collective, Work& work) {
  LOCKSTEP_CHECK(!is_closing_);
  LOCKSTEP_RETURN_IF_ERROR(check(collective));
  const platform::MutexLock lock(starting_);
  simulation::Scheduler& scheduler = network_.scheduler();
  touch_state(simulation::Access::kRead);
  notice_exit();
  if (!cause_.ok()) {
    Status refusal = cause_;
    note_collective(refusal.failure(), collective, next_sequence_);
    return refusal;
  }
  Entry entry;
  entry.fault = network_.injector_of(world_rank_).on_operation(world_rank_);
  if (entry.fault.exit) {
    network_.exit_rank(world_rank_);
    notice_exit();
    return cause_;
  }
  if (entry.fault.pause_us > 0)
    scheduler.pause_group(world_rank_,
                          add(scheduler.now(), std::chrono::microseconds(entry.fault.pause_us)));
  entry.collective = collective;
  entry.work = &work;
  entry.sequence = next_sequence_++;
  work.begin(entry.sequence);
  touch_state(simulation::Access::kRead);  // again: begin() is a scheduling point
  touch_entry(entry.sequence);
  if (queue_.count == queue_.entries.size()) {
    std::rotate(queue_.entries.begin(),
                queue_.entries.begin() + static_cast<std::ptrdiff_t>(queue_.first),
                queue_.entries.end());
    queue_.first = 0;
    queue_.entries.resize(2 * queue_.entries.size());
  }
  queue_.entries[(queue_.first + queue_.count) % queue_.entries.size()] = entry;
  ++queue_.count;
  scheduler.wake_all(idle_);
  return Status();
}

void SimProcessGroup::abort(const Status& cause) {
  LOCKSTEP_CHECK(!cause.ok());
  touch_state(simulation::Access::kWrite);
  if (!cause_.ok()) return;
  cause_ = cause_of_abort(cause, rank_);
  mesh_.close(rank_);
  mesh_.interrupt(rank_);
}

Status SimProcessGroup::health() const {
  touch_state(simulation::Access::kRead);
  return cause_;
}

// An exit ends all groups of a rank at once; this detects it.
void SimProcessGroup::notice_exit() {
  if (!cause_.ok() || !network_.exited(world_rank_)) return;
  touch_state(simulation::Access::kWrite);
  Failure failure;
  failure.code = Code::kAborted;
  failure.rank = failure.reported_by = rank_;
  failure.definite = true;
  failure.detail = "the process exited";
  cause_ = Status(std::move(failure));
}

void SimProcessGroup::work_off() {
  simulation::Scheduler& scheduler = network_.scheduler();
  for (;;) {
    for (;;) {
      touch_state(simulation::Access::kRead);
      touch_entry(taken_);
      if (queue_.count != 0 || is_closing_) break;
      scheduler.wait_at(idle_, simulation::kNever);
    }
    if (queue_.count == 0) return;
    const Entry entry = queue_.entries[queue_.first];
    ++taken_;
    notice_exit();
    Status status = cause_.ok() ? execute(entry) : cause_;
    if (!status.ok()) {
      abort(status);
      note_collective(status.failure(), entry.collective, entry.sequence);
    }
    scheduler.trace(static_cast<std::uint64_t>(world_rank_) << 48 |
                    static_cast<std::uint64_t>(entry.sequence) << 8 |
                    static_cast<std::uint64_t>(status.code()));
    touch_state(simulation::Access::kRead);
    simulation::Scheduler::touch(progress_id_, simulation::Access::kWrite);
    queue_.first = (queue_.first + 1) % queue_.entries.size();
    --queue_.count;
    ++progress_;
    entry.work->complete(std::move(status));
  }
}

Status SimProcessGroup::execute(const Entry& entry) {
  LOCKSTEP_RETURN_IF_ERROR(wait_as_planned(entry));
  const Collective& collective = entry.collective;
  Exchange exchange(mesh_, rank_, entry.sequence,
                    {network_.scheduler(), options_.timeout, progress_});
  bool ok = true;
  if (size() > 1) ok = exchange.agree(header_of(collective, entry.sequence));
  if (ok && collective.verify && collective.count > 0 && size() > 1)
    return run_checked(exchange, entry);
  if (ok && collective.count > 0) ok = move_payload(exchange, collective);
  return ok ? Status() : describe(entry, exchange.halt());
}

// Carries out what the fault plan has for the operation before it begins.
Status SimProcessGroup::wait_as_planned(const Entry& entry) {
  if (entry.fault.error) {
    Failure failure = failure_of(entry, Code::kTransport,
                                 "the transport of rank " + std::to_string(rank_) + " failed");
    failure.rank = rank_;
    failure.definite = true;
    return failure;
  }
  const bool is_stalled = entry.fault.stall;
  if (!is_stalled && entry.fault.delay_us == 0) return Status();
  const Duration now = network_.scheduler().now();
  const Duration delayed = add(now, std::chrono::microseconds(entry.fault.delay_us));
  const Duration until = add(now, options_.timeout);
  const bool is_late = is_stalled || delayed > until;
  const char* what = is_stalled ? "the end of a stall, which never comes" : "the end of a delay";
  const Trouble trouble = mesh_.pause(rank_, what, is_late ? until : delayed);
  if (trouble == Trouble::kInterrupted)
    return describe(entry, Halt{Halt::Cause::kInterrupted, kNone, {}});
  if (!is_late) return Status();
  Failure failure =
      failure_of(entry, Code::kTimeout,
                 "the collective could not begin on rank " + std::to_string(rank_) + " in time");
  failure.rank = rank_;
  return failure;
}

Status SimProcessGroup::run_checked(Exchange& exchange, const Entry& entry) {
  SimFrames frames(exchange, mesh_, network_.injector_of(world_rank_), sent_before_);
  Flaw flaw;
  const CollectiveId id{static_cast<std::uint64_t>(mesh_.generation()), entry.sequence};
  if (run_verified(entry.collective, id, frames, frames_, flaw)) return Status();
  if (flaw.sender == kNone) return describe(entry, exchange.halt());
  Failure failure = failure_of(entry, Code::kCorrupted, "");
  const Failure found = corrupted(flaw, rank_);
  failure.rank = found.rank;
  failure.suspect = found.suspect;
  failure.definite = found.definite;
  failure.detail = found.detail;
  return failure;
}

bool SimProcessGroup::move_payload(Exchange& exchange, const Collective& collective) {
  const std::size_t bytes = collective.count * size_of(collective.dtype);
  const std::span<std::byte> data(collective.data, bytes);
  const auto world = static_cast<std::size_t>(size());
  switch (collective.op) {
    case Op::kAllReduceSum:
      if (world == 1) return true;
      if (collective.reduction == Reduction::kRankOrdered)
        return rank_ordered_all_reduce(exchange, collective.dtype, data);
      if (options_.algorithm == Algorithm::kBcube)
        return bcube_all_reduce(exchange, collective.dtype, data);
      return ring_all_reduce(exchange, collective.dtype, data, options_.max_segment_bytes);
    case Op::kBroadcast:
      return broadcast(exchange, collective.root, data);
    case Op::kAllGather:
      return all_gather(exchange, data, std::span(collective.gathered, world * bytes));
  }
  return true;
}

Failure SimProcessGroup::failure_of(const Entry& entry, Code code, std::string detail) const {
  Failure failure;
  failure.code = code;
  failure.reported_by = rank_;
  note_collective(failure, entry.collective, entry.sequence);
  failure.detail = std::move(detail);
  return failure;
}

// Returns the failure of the current operation. If the operation was interrupted, it is the cause
// that ended the group.
Status SimProcessGroup::describe(const Entry& entry, const Halt& halt) {
  const std::string peer = "rank " + std::to_string(halt.peer);
  const auto suspected = [&](Code code, std::string detail) {
    Failure failure = failure_of(entry, code, std::move(detail));
    failure.suspect = halt.peer;
    return failure;
  };
  const auto mismatch = [&](const std::string& theirs) {
    const Header mine = header_of(entry.collective, entry.sequence);
    Failure failure = suspected(Code::kMismatch, "rank " + std::to_string(rank_) + " entered " +
                                                     text_of(mine) + "; " + theirs);
    failure.rank = rank_;
    failure.definite = true;
    return failure;
  };
  switch (halt.cause) {
    case Halt::Cause::kClosed:
      return suspected(Code::kPeerLost, peer + " closed its connections");
    case Halt::Cause::kReset:
      return suspected(Code::kTransport, "the connection to " + peer + " was reset");
    case Halt::Cause::kTimeout:
      return suspected(Code::kTimeout, "nothing came from " + peer + " in time");
    case Halt::Cause::kOtherHeader:
      return mismatch(peer + " entered " + text_of(halt.theirs));
    case Halt::Cause::kWrongMessage:
      return mismatch(peer + " sent what does not belong to it");
    case Halt::Cause::kInterrupted:
    case Halt::Cause::kNone:
      break;
  }
  LOCKSTEP_CHECK(halt.cause == Halt::Cause::kInterrupted);
  notice_exit();
  LOCKSTEP_CHECK(!cause_.ok());
  return cause_;
}

}  // namespace simulated
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
