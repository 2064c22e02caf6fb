// ThreadNccl: for the tests of this folder, an NCCL whose ranks are threads of one process, on
// QueueDevices. Calls go on their streams, return ncclInProgress for a while, and what ranks do not
// agree on hangs until it is aborted, as it does in NCCL. What each call gives can be scripted, and
// each call is noted. A sum is added from the last rank to the first, so that its bits are not
// those of a rank-ordered one. What a rank sends is gone when it aborts its communicator, or
// shrinks it with the flag to abort, before others have taken it; finalizing waits for nothing, and
// loses nothing.
//
// It also watches the rules of nccl_link.h: `broken_rules` tells which were broken.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "reducer/comm/nccl/nccl_api.h"
#include "reducer/device/test_queue_device.h"
#include "reducer/test_ranks.h"

namespace lockstep::testing {

class ThreadNccl {
 public:
  ThreadNccl() { current() = this; }
  ~ThreadNccl() { current() = nullptr; }
  ThreadNccl(const ThreadNccl&) = delete;
  ThreadNccl& operator=(const ThreadNccl&) = delete;

  NcclApi api(int version = 22809) const;

  // Asked by each call, with the function's name, the rank (kNone without one) and how many calls
  // of that function by that rank were before. Anything but ncclSuccess is the call's result. It
  // may block. ncclCommGetAsyncError gives it as the communicator's state.
  using Script = std::function<NcclResult(const std::string& function, int rank, int before)>;
  void set_script(Script script) {
    std::lock_guard lock(mutex_);
    script_ = std::move(script);
  }
  // Called by a collective on the GPU, with the function's name and the rank, when it has sent its
  // part and before it takes those of the others. It may block.
  using BeforeTaking = std::function<void(const std::string& function, int rank)>;
  void set_before_taking(BeforeTaking before_taking) {
    std::lock_guard lock(mutex_);
    before_taking_ = std::move(before_taking);
  }
  // How often a submission says that it is in progress.
  int looks_in_progress = 1;
  std::string last_error;
  int gpu = 0;  // that every communicator is on

  int calls(const std::string& function, int rank) {
    std::lock_guard lock(mutex_);
    return counts_[{function, rank}];
  }
  std::vector<std::string> order(int rank) {  // without ncclCommGetAsyncError
    std::lock_guard lock(mutex_);
    return order_[rank];
  }
  std::vector<std::string> broken_rules() {
    std::lock_guard lock(mutex_);
    return broken_;
  }

 private:
  struct Part {
    std::string kind;
    std::vector<std::byte> sent;
  };
  struct World {
    int size = 0;
    int here = 0;
    std::map<std::uint64_t, std::map<int, Part>> meetings;  // by number, then rank
    std::map<std::uint64_t, int> taken;  // how many ranks have the result, by meeting
    std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> mail;  // from, to
  };
  struct Comm {
    std::shared_ptr<World> world;
    int rank = 0;
    int in_progress = 0;
    std::uint64_t next_meeting = 0;
    bool is_aborted = false;  // what runs on the GPU ends
    bool is_gone = false;     // aborted or destroyed
    bool is_finalized = false;
    int inside = 0;
    Comm* child = nullptr;      // that is being made of it
    NcclComm* place = nullptr;  // for the child, when the making is over, well or not
    bool is_unmade = false;
  };
  struct Transfer {
    bool is_send = false;
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    int peer = 0;
    Comm* comm = nullptr;
    void* stream = nullptr;
  };
  struct GroupOfCalls {
    int depth = 0;
    std::vector<Transfer> transfers;
  };

  static ThreadNccl*& current() {
    static ThreadNccl* here = nullptr;
    return here;
  }
  // The calls that this thread has grouped; gone with the group, as another thread may have its id
  // later.
  static GroupOfCalls& group() {
    ThreadNccl& nccl = *current();
    std::lock_guard lock(nccl.mutex_);
    return nccl.groups_[std::this_thread::get_id()];
  }
  static void end_group() {
    ThreadNccl& nccl = *current();
    std::lock_guard lock(nccl.mutex_);
    nccl.groups_.erase(std::this_thread::get_id());
  }
  static Comm& at(NcclComm comm) { return *reinterpret_cast<Comm*>(comm); }

  // A call of a thread, for as long as it is inside.
  class Call {
   public:
    Call(ThreadNccl& nccl, const char* function, Comm* comm, int rank = kNone)
        : nccl_(nccl), comm_(comm) {
      Script script;
      const int caller = comm != nullptr ? comm->rank : rank;
      int before = 0;
      {
        std::lock_guard lock(nccl.mutex_);
        script = nccl.script_;
        before = nccl.counts_[{function, caller}]++;
        if (std::string(function) != "ncclCommGetAsyncError")
          nccl.order_[caller].push_back(function);
        const bool is_abort = std::string(function) == "ncclCommAbort";
        if (comm != nullptr && comm->inside++ > 0 && !is_abort)
          nccl.broken_.push_back(std::string(function) + " beside another call");
        if (comm != nullptr && comm->is_gone)
          nccl.broken_.push_back(std::string(function) + " after the communicator's end");
        if (comm != nullptr && comm->is_unmade && !is_abort)
          nccl.broken_.push_back(std::string(function) + " of a child that was not made");
      }
      if (script) result_ = script(function, caller, before);
    }
    ~Call() {
      std::lock_guard lock(nccl_.mutex_);
      if (comm_ != nullptr) --comm_->inside;
    }
    NcclResult result() const { return result_; }

   private:
    ThreadNccl& nccl_;
    Comm* comm_;
    NcclResult result_ = NcclResult::kSuccess;
  };

  Comm& make_comm(std::shared_ptr<World> world, int rank) {
    comms_.push_back(std::make_unique<Comm>());
    comms_.back()->world = std::move(world);
    comms_.back()->rank = rank;
    ++comms_.back()->world->here;
    return *comms_.back();
  }

  static NcclResult init(NcclComm* comm, int size, NcclUniqueId id, int rank, NcclConfig* config) {
    ThreadNccl& nccl = *current();
    Call call(nccl, "ncclCommInitRankConfig", nullptr, rank);
    if (call.result() != NcclResult::kSuccess) return call.result();
    std::lock_guard lock(nccl.mutex_);
    if (config->blocking != 0) nccl.broken_.push_back("a communicator that blocks");
    auto& world = nccl.worlds_[std::string(id.internal, sizeof id.internal)];
    if (world == nullptr) world = std::make_shared<World>();
    world->size = size;
    *comm = reinterpret_cast<NcclComm>(&nccl.make_comm(world, rank));
    return NcclResult::kInProgress;
  }

  static NcclResult shrink(NcclComm parent, int* excluded, int count, NcclComm* child, NcclConfig*,
                           int flags) {
    ThreadNccl& nccl = *current();
    Comm& from = at(parent);
    Call call(nccl, "ncclCommShrink", &from);
    if (call.result() != NcclResult::kSuccess) return call.result();
    std::lock_guard lock(nccl.mutex_);
    if (flags != kNcclShrinkAbort && from.is_aborted)
      nccl.broken_.push_back("a shrink of what was revoked, without the flag to abort");
    if (flags == kNcclShrinkAbort) lose_what_was_sent(from);
    if (count < 1) return NcclResult::kInvalidArgument;
    const std::vector<int> out(excluded, excluded + count);
    int rank = 0;
    for (int r = 0; r < from.rank; ++r)
      if (std::find(out.begin(), out.end(), r) == out.end()) ++rank;
    auto& world = nccl.shrunk_[from.world.get()];
    if (world == nullptr) world = std::make_shared<World>();
    world->size = from.world->size - count;
    Comm& made = nccl.make_comm(world, rank);
    from.child = &made;
    from.place = child;
    *child = nullptr;
    return NcclResult::kSuccess;  // and goes on
  }
  // What the others have not all taken yet. (With the mutex.)
  static void lose_what_was_sent(const Comm& on) {
    for (auto& [number, meeting] : on.world->meetings)
      if (on.world->taken[number] < on.world->size) meeting.erase(on.rank);
  }

  // NCCL's thread puts the child where it belongs; also one that it could not make.
  static void hand_out_child(Comm& on, bool was_made) {
    if (on.child == nullptr) return;
    on.child->is_unmade = !was_made;
    *on.place = reinterpret_cast<NcclComm>(std::exchange(on.child, nullptr));
  }

  static NcclResult async_error(NcclComm comm, NcclResult* error) {
    ThreadNccl& nccl = *current();
    Comm& on = at(comm);
    Call call(nccl, "ncclCommGetAsyncError", &on);
    *error = call.result();
    std::lock_guard lock(nccl.mutex_);
    const Comm& asked = on.child != nullptr ? *on.child : on;
    const bool is_whole = asked.world->here == asked.world->size;
    if (*error == NcclResult::kSuccess &&
        (!is_whole || (on.in_progress > 0 && on.in_progress-- > 0)))
      *error = NcclResult::kInProgress;
    if (*error != NcclResult::kInProgress) hand_out_child(on, *error == NcclResult::kSuccess);
    return NcclResult::kSuccess;
  }

  static NcclResult abort(NcclComm comm) {
    ThreadNccl& nccl = *current();
    Comm& on = at(comm);
    Call call(nccl, "ncclCommAbort", &on);
    std::lock_guard lock(nccl.mutex_);
    on.is_aborted = true;
    on.is_gone = true;
    if (!on.is_finalized) lose_what_was_sent(on);
    hand_out_child(on, false);
    nccl.changed_.notify_all();
    return call.result();
  }

  static NcclResult revoke(NcclComm comm, int) {
    ThreadNccl& nccl = *current();
    Comm& on = at(comm);
    Call call(nccl, "ncclCommRevoke", &on);
    std::lock_guard lock(nccl.mutex_);
    if (on.in_progress > 0) nccl.broken_.push_back("ncclCommRevoke of one that is in progress");
    on.is_aborted = true;
    nccl.changed_.notify_all();
    return call.result();
  }

  static NcclResult finalize(NcclComm comm) {
    ThreadNccl& nccl = *current();
    Comm& on = at(comm);
    Call call(nccl, "ncclCommFinalize", &on);
    std::lock_guard lock(nccl.mutex_);
    on.is_finalized = call.result() == NcclResult::kSuccess;
    return call.result();
  }
  static NcclResult destroy(NcclComm comm) {
    ThreadNccl& nccl = *current();
    Comm& on = at(comm);
    Call call(nccl, "ncclCommDestroy", &on);
    std::lock_guard lock(nccl.mutex_);
    if (on.is_aborted) nccl.broken_.push_back("ncclCommDestroy after a failure");
    on.is_gone = true;
    return call.result();
  }

  static DType dtype_of(NcclDataType type) {
    switch (type) {
      case NcclDataType::kFloat64:
        return DType::kFloat64;
      case NcclDataType::kFloat16:
        return DType::kFloat16;
      case NcclDataType::kBfloat16:
        return DType::kBFloat16;
      case NcclDataType::kInt32:
        return DType::kInt32;
      case NcclDataType::kUint8:
        return DType::kByte;
      default:
        return DType::kFloat32;
    }
  }

  // A collective: meets the other ranks' on the stream, then does `finish` with what all sent.
  using Finish = std::function<void(const std::map<int, Part>&)>;
  static NcclResult collective(const char* function, NcclComm comm, std::string kind,
                               const std::byte* send, std::size_t bytes, void* stream,
                               Finish finish) {
    ThreadNccl& nccl = *current();
    Comm& on = at(comm);
    Call call(nccl, function, &on);
    if (call.result() != NcclResult::kSuccess) return call.result();
    std::unique_lock lock(nccl.mutex_);
    const std::uint64_t number = on.next_meeting++;
    on.in_progress = nccl.looks_in_progress;
    lock.unlock();
    QueueDevice::submit(stream, [&nccl, &on, name = std::string(function), number,
                                 kind = std::move(kind), send, bytes, finish = std::move(finish)] {
      std::unique_lock inside(nccl.mutex_);
      if (on.is_aborted) return;
      auto& meeting = on.world->meetings[number];
      meeting[on.rank] = {kind, {send, send + bytes}};
      nccl.changed_.notify_all();
      if (const BeforeTaking before_taking = nccl.before_taking_) {
        inside.unlock();
        before_taking(name, on.rank);
        inside.lock();
      }
      nccl.changed_.wait(inside, [&] {
        const bool is_whole = static_cast<int>(meeting.size()) == on.world->size;
        const bool are_alike = std::all_of(meeting.begin(), meeting.end(),
                                           [&](const auto& m) { return m.second.kind == kind; });
        return on.is_aborted || (is_whole && are_alike);
      });
      if (on.is_aborted) return;
      finish(meeting);
      ++on.world->taken[number];
    });
    return nccl.looks_in_progress > 0 ? NcclResult::kInProgress : NcclResult::kSuccess;
  }

  static NcclResult all_reduce(const void* send, void* receive, std::size_t count,
                               NcclDataType type, NcclRedOp, NcclComm comm, void* stream) {
    const DType dtype = dtype_of(type);
    std::byte* const to = QueueDevice::reach(stream, receive);
    return collective("ncclAllReduce", comm,
                      "sum of " + std::to_string(count) + " " + name_of(dtype),
                      QueueDevice::reach(stream, send), count * size_of(dtype), stream,
                      [=](const std::map<int, Part>& parts) {
                        for (std::size_t i = 0; i < count; ++i) {
                          auto part = parts.rbegin();
                          double sum = element(dtype, part->second.sent.data(), i);
                          for (++part; part != parts.rend(); ++part)
                            sum = rounded(dtype, sum + element(dtype, part->second.sent.data(), i));
                          set_element(dtype, to, i, sum);
                        }
                      });
  }
  static NcclResult broadcast(const void* send, void* receive, std::size_t count, NcclDataType type,
                              int root, NcclComm comm, void* stream) {
    const std::size_t bytes = count * size_of(dtype_of(type));
    std::byte* const to = QueueDevice::reach(stream, receive);
    return collective("ncclBroadcast", comm,
                      "broadcast of " + std::to_string(bytes) + " from " + std::to_string(root),
                      QueueDevice::reach(stream, send), bytes, stream,
                      [=](const std::map<int, Part>& parts) {
                        std::memcpy(to, parts.at(root).sent.data(), bytes);
                      });
  }
  static NcclResult all_gather(const void* send, void* receive, std::size_t count,
                               NcclDataType type, NcclComm comm, void* stream) {
    const std::size_t bytes = count * size_of(dtype_of(type));
    std::byte* const all = QueueDevice::reach(stream, receive);
    return collective("ncclAllGather", comm, "gather of " + std::to_string(bytes),
                      QueueDevice::reach(stream, send), bytes, stream,
                      [=](const std::map<int, Part>& parts) {
                        for (const auto& [rank, part] : parts) {
                          std::byte* const to = all + static_cast<std::size_t>(rank) * bytes;
                          std::memcpy(to, part.sent.data(), bytes);
                          if (current()->disturb)
                            current()->disturb(rank, at(comm).rank, to, bytes);
                        }
                      });
  }

  static NcclResult group_start() {
    ++group().depth;
    return NcclResult::kSuccess;
  }
  static NcclResult transfer(const char* function, Transfer transfer) {
    Call call(*current(), function, transfer.comm);
    if (call.result() == NcclResult::kSuccess) group().transfers.push_back(transfer);
    return call.result();
  }
  static NcclResult send(const void* data, std::size_t count, NcclDataType type, int peer,
                         NcclComm comm, void* stream) {
    std::byte* const from = QueueDevice::reach(stream, data);
    return transfer("ncclSend",
                    {true, from, count * size_of(dtype_of(type)), peer, &at(comm), stream});
  }
  static NcclResult receive(void* data, std::size_t count, NcclDataType type, int peer,
                            NcclComm comm, void* stream) {
    return transfer("ncclRecv", {false, QueueDevice::reach(stream, data),
                                 count * size_of(dtype_of(type)), peer, &at(comm), stream});
  }
  static NcclResult group_end() {
    ThreadNccl& nccl = *current();
    GroupOfCalls& calls = group();
    if (--calls.depth > 0) return NcclResult::kSuccess;
    const std::vector<Transfer> transfers = std::move(calls.transfers);
    end_group();
    if (transfers.empty()) return NcclResult::kSuccess;
    Comm& on = *transfers[0].comm;
    Call call(nccl, "ncclGroupEnd", &on);
    if (call.result() != NcclResult::kSuccess) return call.result();
    {
      std::lock_guard lock(nccl.mutex_);
      on.in_progress = nccl.looks_in_progress;
    }
    QueueDevice::submit(transfers[0].stream, [&nccl, &on, transfers] {
      std::unique_lock inside(nccl.mutex_);
      if (on.is_aborted) return;
      for (const Transfer& t : transfers)
        if (t.is_send) on.world->mail[{on.rank, t.peer}].emplace_back(t.data, t.data + t.bytes);
      nccl.changed_.notify_all();
      for (const Transfer& t : transfers) {
        if (t.is_send) continue;
        auto& box = on.world->mail[{t.peer, on.rank}];
        nccl.changed_.wait(inside, [&] {
          return on.is_aborted || (!box.empty() && box.front().size() == t.bytes);
        });
        if (on.is_aborted) return;
        std::memcpy(t.data, box.front().data(), t.bytes);
        box.pop_front();
        if (nccl.disturb) nccl.disturb(t.peer, on.rank, t.data, t.bytes);
      }
    });
    return nccl.looks_in_progress > 0 ? NcclResult::kInProgress : NcclResult::kSuccess;
  }

 public:
  // Changes what arrives by all-gather, or send and receive, on its way.
  std::function<void(int from, int to, std::byte* data, std::size_t bytes)> disturb;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Script script_;
  BeforeTaking before_taking_;
  std::map<std::pair<std::string, int>, int> counts_;
  std::map<std::thread::id, GroupOfCalls> groups_;
  std::map<int, std::vector<std::string>> order_;
  std::vector<std::string> broken_;
  std::map<std::string, std::shared_ptr<World>> worlds_;
  std::map<World*, std::shared_ptr<World>> shrunk_;
  std::vector<std::unique_ptr<Comm>> comms_;
  int next_id_ = 0;
};

inline NcclApi ThreadNccl::api(int version) const {
  NcclApi api;
  api.version = version;
  api.library = "the NCCL of the tests";
  api.get_version = [](int* given) {
    *given = 22809;
    return NcclResult::kSuccess;
  };
  api.get_unique_id = [](NcclUniqueId* id) {
    ThreadNccl& nccl = *current();
    Call call(nccl, "ncclGetUniqueId", nullptr);
    std::lock_guard lock(nccl.mutex_);
    *id = {};
    id->internal[0] = static_cast<char>(++nccl.next_id_);
    return call.result();
  };
  api.comm_init_rank_config = init;
  api.comm_destroy = destroy;
  api.comm_abort = abort;
  api.get_error_string = [](NcclResult) { return "what NCCL says"; };
  api.get_last_error = [](NcclComm) { return current()->last_error.c_str(); };
  api.comm_get_async_error = async_error;
  api.comm_count = [](NcclComm comm, int* count) {
    *count = at(comm).world->size;
    return NcclResult::kSuccess;
  };
  api.comm_cu_device = [](NcclComm, int* device) {
    *device = current()->gpu;
    return NcclResult::kSuccess;
  };
  api.comm_user_rank = [](NcclComm comm, int* rank) {
    *rank = at(comm).rank;
    return NcclResult::kSuccess;
  };
  api.broadcast = broadcast;
  api.all_reduce = all_reduce;
  api.all_gather = all_gather;
  api.send = send;
  api.receive = receive;
  api.group_start = group_start;
  api.group_end = group_end;
  if (version >= 21403) api.comm_finalize = finalize;
  if (version >= 22703) api.comm_shrink = shrink;
  if (version >= 22807) api.comm_revoke = revoke;
  return api;
}

}  // namespace lockstep::testing
