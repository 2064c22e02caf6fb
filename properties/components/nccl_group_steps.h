// The steps of what nccl_group.h asks: how a rank connects, starts and waits, what it may be told,
// and an NCCL whose calls can be made to fail, take long, or change what is sent.
//
// Threads: any rank's own fiber. The changes of calls belong to the process that runs.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "faults/sim/device/sim_device.h"
#include "faults/sim/scheduler/scheduler.h"
#include "properties/components/nccl_group.h"
#include "properties/components/virtual_sleep.h"
#include "reducer/comm/collective_header.h"
#include "reducer/comm/store.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace group_check {

using platform::Deadline;
using platform::Duration;
using std::chrono::milliseconds;

constexpr Duration kTimeout = std::chrono::seconds(5);
constexpr Duration kPoll = milliseconds(100);
constexpr Duration kWhile = milliseconds(500);     // much longer than a poll
constexpr Duration kSoon = kTimeout / 2;           // nobody has waited for a timeout
constexpr Duration kLate = kTimeout + 2 * kWhile;  // all have, and for nothing else
constexpr Duration kNever = 20 * kTimeout;
constexpr const char* kWords = "the user of this rank gives up";
constexpr const char* kFurther = "the user gives up once more";
constexpr std::int64_t kPass = 7;  // of all collectives
constexpr int kBucket = 3;
constexpr std::int64_t kReducer = 2;
constexpr const char* kUnentered = "; not all ranks have entered it";

// What happens to a payload before NCCL sends it, on its stream. Payloads of calls that are no
// grouped sends change in any case, since a verified collective has none.
struct Tampering {
  enum class Kind : std::uint8_t { kNone, kRecords, kFlips, kReplays };
  Kind kind = Kind::kNone;
  int number = 0;  // of the send that changes
  std::uint32_t place = 0;
  std::byte change{};
  int sends = 0;                                 // so far
  int receiver = kNone;                          // of what has changed
  std::map<int, std::vector<std::byte>> frames;  // what was recorded, by the number of the send
};

// How NCCL behaves differently on one rank, and which of its functions that rank has called.
struct Deviation {
  std::string_view fails;      // the function that returns an error
  bool takes_nothing = false;  // collectives stay in progress
  bool loses_sums = false;     // an all-reduce does nothing, and succeeds
  bool hides_errors = false;   // as releases do that lose the errors of the network
  Duration delay{0};           // of a broadcast
  int finalized = 0;
  int destroyed = 0;
  int aborted = 0;
  Duration abort_takes{0};
  int flags = kNone;                               // of ncclCommShrink
  NcclResult result = NcclResult::kInternalError;  // of what fails
  std::string_view last_error;
  int gathers = 0;  // calls of ncclAllGather
  Tampering tampering;
};

// One OS thread runs all ranks, and one simulation at a time.
inline NcclApi real;
inline std::map<std::uint32_t, Deviation> deviations;  // by process

inline Deviation& here() { return deviations[simulation::Scheduler::running()->current_group()]; }

inline NcclResult seen(NcclResult result) {
  const bool is_hidden = here().hides_errors && result == NcclResult::kRemoteError;
  return is_hidden ? NcclResult::kSuccess : result;
}

// Acts on `bytes` bytes that NCCL is about to read on the stream.
inline void tamper(const void* from, std::size_t bytes, CudaStreamHandle native, int receiver) {
  using Kind = Tampering::Kind;
  Tampering& it = here().tampering;
  if (it.kind == Kind::kNone || bytes == 0) return;
  const bool is_send = receiver != kNone;
  const int number = is_send ? it.sends++ : it.number;
  if (it.kind == Kind::kRecords ? !is_send : number != it.number) return;
  auto* const data = const_cast<std::byte*>(static_cast<const std::byte*>(from));
  const bool writes = it.kind != Kind::kRecords;
  if (writes) it.receiver = receiver;
  const Stream stream = simulated::SimDevice::stream_of(native);
  static_cast<simulated::SimDevice*>(stream.device)
      ->submit(stream, "an accident", {{data, bytes, writes}}, [&it, number, data, bytes] {
        if (it.kind == Kind::kRecords) it.frames[number].assign(data, data + bytes);
        if (it.kind == Kind::kFlips) data[it.place % bytes] ^= it.change;
        const auto found = it.frames.find(number);
        if (it.kind == Kind::kReplays && found != it.frames.end() && found->second.size() == bytes)
          std::copy(found->second.begin(), found->second.end(), data);
      });
}

constexpr bool is_header(std::size_t bytes) { return bytes == sizeof(CollectiveHeader); }

inline NcclApi deviating(const NcclApi& api) {
  real = api;
  here() = {};
  NcclApi table = api;
  table.get_unique_id = [](NcclUniqueId* id) {
    return here().fails == "ncclGetUniqueId" ? here().result : real.get_unique_id(id);
  };
  table.comm_init_rank_config = [](NcclComm* comm, int ranks, NcclUniqueId id, int rank,
                                   NcclConfig* config) {
    return here().fails == "ncclCommInitRankConfig"
               ? here().result
               : real.comm_init_rank_config(comm, ranks, id, rank, config);
  };
  table.comm_get_async_error = [](NcclComm comm, NcclResult* error) {
    const NcclResult result = real.comm_get_async_error(comm, error);
    if (here().takes_nothing) *error = NcclResult::kInProgress;
    *error = seen(*error);
    return result;
  };
  table.all_gather = [](const void* from, void* to, std::size_t count, NcclDataType type,
                        NcclComm comm, CudaStreamHandle stream) {
    ++here().gathers;
    if (here().fails == "ncclAllGather") return here().result;
    if (!is_header(count)) tamper(from, count, stream, kNone);
    if (here().takes_nothing) return NcclResult::kInProgress;
    return seen(real.all_gather(from, to, count, type, comm, stream));
  };
  table.all_reduce = [](const void* from, void* to, std::size_t count, NcclDataType type,
                        NcclRedOp op, NcclComm comm, CudaStreamHandle stream) {
    if (here().fails == "ncclAllReduce") return here().result;
    tamper(from, count, stream, kNone);
    if (here().loses_sums) return NcclResult::kSuccess;
    return seen(real.all_reduce(from, to, count, type, op, comm, stream));
  };
  table.broadcast = [](const void* from, void* to, std::size_t count, NcclDataType type, int root,
                       NcclComm comm, CudaStreamHandle stream) {
    if (here().delay > Duration(0)) virtual_sleep(here().delay);
    if (here().aborted > 0) return NcclResult::kInternalError;  // meanwhile
    tamper(from, count, stream, kNone);
    return real.broadcast(from, to, count, type, root, comm, stream);
  };
  table.send = [](const void* from, std::size_t count, NcclDataType type, int peer, NcclComm comm,
                  CudaStreamHandle stream) {
    tamper(from, count, stream, peer);
    return real.send(from, count, type, peer, comm, stream);
  };
  table.get_last_error = [](NcclComm comm) {
    const std::string_view told = here().last_error;
    return told.empty() ? real.get_last_error(comm) : told.data();
  };
  table.comm_destroy = [](NcclComm comm) {
    ++here().destroyed;
    return real.comm_destroy(comm);
  };
  table.comm_abort = [](NcclComm comm) {
    ++here().aborted;
    if (here().abort_takes > Duration(0)) virtual_sleep(here().abort_takes);
    return real.comm_abort(comm);
  };
  if (api.comm_finalize != nullptr)
    table.comm_finalize = [](NcclComm comm) {
      ++here().finalized;
      return real.comm_finalize(comm);
    };
  if (api.comm_shrink != nullptr)
    table.comm_shrink = [](NcclComm comm, int* excluded, int count, NcclComm* child,
                           NcclConfig* config, int flags) {
      here().flags = flags;
      return real.comm_shrink(comm, excluded, count, child, config, flags);
    };
  return table;
}

// The store of one rank, which damages the rank's report, or takes its time with it.
class ReportStore final : public PrefixStore {
 public:
  explicit ReportStore(std::shared_ptr<Store> inner) : PrefixStore("", std::move(inner)) {}
  Result<bool> set(std::string_view key, std::string_view value) override {
    const bool is_report = key.ends_with("/failure");
    if (is_report && delay > Duration(0)) virtual_sleep(delay);
    if (is_report && damages) value = value.substr(0, 3);
    if (key.ends_with("/id") && damages_id) value = value.substr(0, 20);
    return PrefixStore::set(key, value);
  }

  Duration delay{0};
  bool damages = false;
  bool damages_id = false;  // of the communicator
};

// A sum of ones, or a broadcast of the root's number.
struct Started {
  float value = 1;
  Work work;
  Status refusal;
  Duration begun{};
  Collective collective;

  void start(NcclProcessGroup& group, Op op = Op::kAllReduceSum, std::uint64_t count = 1) {
    collective.op = op;
    collective.count = count;
    collective.pass = kPass;
    collective.bucket = kBucket;
    collective.reducer_id = kReducer;
    if (collective.data == nullptr) collective.data = reinterpret_cast<std::byte*>(&value);
    begun = platform::now();
    refusal = group.start(collective, work);
  }
  Duration took() const { return work.completed_at() - begun; }
};

// The fields and words that an error must have.
struct Told {
  Code code = Code::kTimeout;
  std::optional<int> rank;
  std::optional<int> suspect;
  std::string words;
  bool is_definite = false;
};

// Results of NCCL that are a rank's own errors, and what they are called.
struct OwnError {
  NcclResult result;
  std::string_view name;
};
constexpr std::array<OwnError, 5> kOwnErrors{
    {{NcclResult::kUnhandledCudaError, "ncclUnhandledCudaError"},
     {NcclResult::kSystemError, "ncclSystemError"},
     {NcclResult::kInternalError, "ncclInternalError"},
     {NcclResult::kInvalidArgument, "ncclInvalidArgument"},
     {NcclResult::kInvalidUsage, "ncclInvalidUsage"}}};

class GroupSteps {
 public:
  GroupSteps(const NcclApi& api, Device& gpu, std::shared_ptr<Store> store, const GroupOfCheck& of,
             const Choices& choices)
      : of_(of),
        gpu_(gpu),
        api_(deviating(api)),
        store_(std::make_shared<ReportStore>(std::move(store))),
        chance_(choices) {
    at_first_.timeout = at_first_.connect_timeout = kTimeout;
    at_first_.poll = at_first_.notice = kPoll;
    at_first_.grace = 2 * kPoll;
  }

 protected:
  // ---- Words ----

  bool expect(bool is_right, const std::string& what, const Status& status = {}) {
    if (!is_right && wrong_.empty()) wrong_ = what + ": " + status.to_string();
    return is_right;
  }

  void expect_told(const Status& status, const Told& told) {
    if (!expect(!status.ok(), "has no error")) return;
    const Failure& failure = status.failure();
    expect(failure.code == told.code, fmt::format("has no {}", name_of(told.code)), status);
    expect(!told.rank || failure.rank == *told.rank,
           fmt::format("does not name rank {}", told.rank.value_or(kNone)), status);
    expect(!told.suspect || failure.suspect == *told.suspect,
           fmt::format("does not suspect rank {}", told.suspect.value_or(kNone)), status);
    expect(failure.detail.find(told.words) != std::string::npos,
           fmt::format("does not say '{}'", told.words), status);
    expect(failure.definite == told.is_definite, "is certain, or is not", status);
    expect(failure.reported_by == of_.rank, "lets another rank report", status);
  }

  void expect_soon(Duration took, const Status& status) {
    expect(took < kSoon, fmt::format("learns it only after {} s", took / std::chrono::seconds(1)),
           status);
  }
  void expect_timeout(Duration took, const Status& status) {
    expect(took >= kTimeout && took < kLate,
           fmt::format("gives up after {} ms", took / milliseconds(1)), status);
  }

  static bool attaches(const Failure& failure, const std::string& words) {
    return std::any_of(failure.later.begin(), failure.later.end(), [&](const std::string& line) {
      return line.find(words) != std::string::npos && line.find(kFurther) == std::string::npos;
    });
  }

  // ---- Steps ----

  std::string key_of(const std::string& label, int rank) const {
    return fmt::format("{}/check/{}/{}", name_, label, rank);
  }

  // Waits for all ranks, and returns what each of them says.
  std::vector<std::string> meet(const std::string& label, const std::string& says = "-") {
    static_cast<void>(store_->set(key_of(label, of_.rank), says));
    std::vector<std::string> all;
    for (int rank = 0; rank < of_.size; ++rank)
      all.push_back(
          store_->get(key_of(label, rank), Deadline::in(kNever)).value_or(std::string("?")));
    return all;
  }

  Result<std::unique_ptr<NcclProcessGroup>> connect() {
    return NcclProcessGroup::connect(api_, gpu_, store_, of_.rank, of_.size, options_);
  }

  std::unique_ptr<NcclProcessGroup> connected() {
    auto made = connect();
    if (!expect(made.has_value(), "cannot connect", made ? Status() : made.error())) return {};
    expect((*made)->origin() == std::string_view("ncclCommInitRankConfig"),
           fmt::format("says that '{}' made its communicator", (*made)->origin()));
    return std::move(*made);
  }

  // Waits for the end, and returns the error.
  Status end_of(NcclProcessGroup& group, Started& started) {
    if (!started.refusal.ok()) return started.refusal;
    const Status status = started.work.wait(Deadline::in(kNever));
    if (started.work.done()) return status;
    expect(false, "has a collective that does not end", status);
    group.abort(Status(Code::kAborted, kFurther));
    return started.work.wait(Deadline::never());
  }

  auto soon() { return std::bind_front(&GroupSteps::expect_soon, this); }
  auto after_timeout() { return std::bind_front(&GroupSteps::expect_timeout, this); }

  // Expects this of two collectives, or one, that are started one after the other. The first one
  // fails, so both errors name that one, unless somebody has ended the group.
  void expect_both_told(NcclProcessGroup& group, const Told& told, bool names_first,
                        const std::function<void(Duration, const Status&)>& expect_span,
                        std::size_t count = 2) {
    std::array<Started, 2> all;
    for (std::size_t i = 0; i < count; ++i) all[i].start(group);
    for (std::size_t i = 0; i < count; ++i) {
      Started* const each = &all[i];
      const Status status = end_of(group, *each);
      if (!each->refusal.ok()) continue;  // The rank may not have learned the cause by then.
      expect_told(status, told);
      if (status.ok()) continue;
      const Failure& failure = status.failure();
      const std::int64_t sequence = all[names_first ? 0 : i].work.sequence();
      expect(failure.collective == "all_reduce" && failure.sequence == sequence,
             "names another collective", status);
      expect(failure.pass == kPass && failure.bucket == kBucket && failure.reducer_id == kReducer,
             "names another pass, bucket or reducer", status);
      expect_span(each->took(), status);
    }
    expect_told(group.health(), told);
    expect_kept(group);
  }

  // The first cause stays, and a later one is attached, once.
  void expect_kept(NcclProcessGroup& group) {
    const Status before = group.health();
    if (!expect(!before.ok(), "has a failed group that does not say so")) return;
    for (int i = 0; i < 2; ++i) group.abort(Status(Code::kUserFailure, kFurther));
    const Status after = group.health();
    expect(after.code() == before.code() && after.failure().detail == before.failure().detail,
           "has changed the first cause", after);
    const auto& later = after.failure().later;
    const auto count = std::count_if(later.begin(), later.end(), [](const std::string& line) {
      return line.find(kFurther) != std::string::npos;
    });
    expect(count == 1, fmt::format("has attached {} times what came later", count), after);
  }

  void sum_well(NcclProcessGroup& group) {
    Started sum;
    const std::uint64_t before = group.progress();
    sum.start(group);
    const Status status = end_of(group, sum);
    expect(status.ok(), "cannot sum", status);
    expect(sum.value == static_cast<float>(group.size()), fmt::format("has the sum {}", sum.value));
    expect(group.progress() != before, "has made no progress with a sum");
  }

  // An idle group is finalized and destroyed, without a wait (F5).
  void end_idle(std::unique_ptr<NcclProcessGroup> group) {
    const Deviation before = here();
    const Duration begun = platform::now();
    group.reset();
    const Deviation after = here();
    const Duration took = platform::now() - begun;
    expect(took < kWhile, fmt::format("leaves an idle group in {} ms", took / milliseconds(1)));
    const int finalized = api_.comm_finalize == nullptr ? 0 : 1;
    expect(after.finalized - before.finalized == finalized &&
               after.destroyed - before.destroyed == 1 && after.aborted == before.aborted,
           fmt::format("ends an idle communicator with {} of ncclCommFinalize, {} of "
                       "ncclCommDestroy and {} of ncclCommAbort",
                       after.finalized - before.finalized, after.destroyed - before.destroyed,
                       after.aborted - before.aborted));
  }

  // The communicator of a failed group is aborted, once.
  void end_failed(std::unique_ptr<NcclProcessGroup> group) {
    if (group == nullptr) return;
    meet("failed");  // A rank that has not failed hears of it until here.
    const bool has_failed = !group->health().ok();
    group.reset();
    if (!has_failed) return;
    expect(here().aborted == 1 && here().destroyed == 0,
           fmt::format("ends the communicator of a failed group with {} of ncclCommAbort and {} of "
                       "ncclCommDestroy",
                       here().aborted, here().destroyed));
  }

  const GroupOfCheck of_;
  Device& gpu_;
  const NcclApi api_;
  const std::shared_ptr<ReportStore> store_;
  Choices chance_;  // the rank's own: all ranks draw alike
  NcclOptions at_first_;
  // These are drawn anew for each scenario.
  std::string name_;
  NcclOptions options_;
  std::uint32_t draw_ = 0;
  int culprit_ = 0;
  bool is_culprit_ = false;
  std::string wrong_;
};

}  // namespace group_check
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
