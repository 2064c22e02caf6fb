#include "properties/lane/group_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "faults/sim/device/sim_device.h"
#include "faults/sim/scheduler/scheduler.h"
#include "properties/generate/random.h"
#include "properties/lane/virtual_sleep.h"
#include "reducer/comm/collective_header.h"
#include "reducer/comm/store.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

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
NcclApi real;
std::map<std::uint32_t, Deviation> deviations;  // by process

Deviation& here() { return deviations[simulation::Scheduler::running()->current_group()]; }

NcclResult seen(NcclResult result) {
  const bool is_hidden = here().hides_errors && result == NcclResult::kRemoteError;
  return is_hidden ? NcclResult::kSuccess : result;
}

// Acts on `bytes` bytes that NCCL is about to read on the stream.
void tamper(const void* from, std::size_t bytes, CudaStreamHandle native, int receiver) {
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

NcclApi deviating(const NcclApi& api) {
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

// A collective whose contents are known.
struct Payload {
  Op op = Op::kAllReduceSum;
  DType dtype = DType::kFloat32;
  Reduction reduction = Reduction::kNative;
  std::size_t count = 1;
  int root = 0;
  bool is_on_gpu = false;
  bool is_verified = false;

  std::size_t bytes() const { return count * size_of(dtype); }
  // Numbers from 1 to 5, so that the sum of a few of them is exact in each dtype.
  static int number(int rank, std::size_t at) {
    return 1 + static_cast<int>((static_cast<std::size_t>(rank) * 3 + at * 2) % 5);
  }
  // What a number of elements are in memory.
  std::vector<std::byte> encoded(const std::function<int(std::size_t)>& number_at) const;
  std::vector<std::byte> sent(int rank) const {
    return encoded([rank](std::size_t at) { return number(rank, at); });
  }
  std::vector<std::byte> result(int size) const {
    if (op == Op::kBroadcast) return sent(root);
    if (op == Op::kAllReduceSum)
      return encoded([size](std::size_t at) {
        int sum = 0;
        for (int rank = 0; rank < size; ++rank) sum += number(rank, at);
        return sum;
      });
    std::vector<std::byte> all;
    for (int rank = 0; rank < size; ++rank) {
      const std::vector<std::byte> one = sent(rank);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }
};

// The bits of a small positive number whose significand has `digits` bits.
std::uint16_t as_half(int number, int digits, int bias) {
  int exponent = 0;
  while (number >> (exponent + 1) != 0) ++exponent;
  const int significand = ((number << digits) >> exponent) & ((1 << digits) - 1);
  return static_cast<std::uint16_t>(((exponent + bias) << digits) | significand);
}

std::vector<std::byte> Payload::encoded(const std::function<int(std::size_t)>& number_at) const {
  std::vector<std::byte> all(bytes());
  const auto put = [&](std::size_t at, auto value) {
    std::memcpy(all.data() + at * sizeof value, &value, sizeof value);
  };
  for (std::size_t at = 0; at < count; ++at) {
    const int number = number_at(at);
    switch (dtype) {
      case DType::kFloat64:
        put(at, static_cast<double>(number));
        break;
      case DType::kFloat32:
        put(at, static_cast<float>(number));
        break;
      case DType::kFloat16:
        put(at, as_half(number, 10, 15));
        break;
      case DType::kBFloat16:
        put(at, as_half(number, 7, 127));
        break;
      case DType::kInt32:
        put(at, number);
        break;
      case DType::kByte:
        put(at, static_cast<std::uint8_t>(number));
        break;
      case DType::kComplex64:
        put(at, std::array<float, 2>{static_cast<float>(number), -1});
        break;
    }
  }
  return all;
}

class GroupCheck {
 public:
  GroupCheck(const NcclApi& api, Device& gpu, std::shared_ptr<Store> store, const GroupOfCheck& of)
      : of_(of),
        gpu_(gpu),
        api_(deviating(api)),
        store_(std::make_shared<ReportStore>(std::move(store))),
        chance_(of.key, 0, "group") {
    at_first_.timeout = at_first_.connect_timeout = kTimeout;
    at_first_.poll = at_first_.notice = kPoll;
    at_first_.grace = 2 * kPoll;
  }

  std::string run() {
    constexpr std::uint32_t kStep = 5;  // so that no scenario comes twice
    bool is_right = true;               // on all ranks
    for (std::uint32_t i = 0; i < kScenariosOfKey && is_right; ++i)
      is_right = run((scenario_of(of_.key) + i * kStep) % kGroupScenarios);
    return wrong_;
  }

 private:
  bool run(std::uint32_t which) {
    using Scenario = void (GroupCheck::*)();
    constexpr std::array<Scenario, kGroupScenarios> kScenarios{
        &GroupCheck::user_gives_up,       &GroupCheck::calls_fail_on_two,
        &GroupCheck::rank_is_silent,      &GroupCheck::rank_has_left,
        &GroupCheck::rank_is_late,        &GroupCheck::nothing_is_taken,
        &GroupCheck::sum_is_lost,         &GroupCheck::rank_does_not_come,
        &GroupCheck::rank_cannot_connect, &GroupCheck::nobody_is_excluded,
        &GroupCheck::others_go_on,        &GroupCheck::report_is_damaged_or_slow,
        &GroupCheck::shrunk_while_busy,   &GroupCheck::abort_takes_long,
        &GroupCheck::leaving_takes_long,  &GroupCheck::rank_does_not_shrink,
        &GroupCheck::many_are_queued,     &GroupCheck::payloads_are_checked,
        &GroupCheck::notes_are_damaged,   &GroupCheck::one_more_is_started};
    here() = {};
    store_->damages = store_->damages_id = false;
    store_->delay = Duration(0);
    culprit_ = static_cast<int>(chance_.below(static_cast<std::uint32_t>(of_.size)));
    is_culprit_ = culprit_ == of_.rank;
    options_ = at_first_;
    options_.name = name_ = fmt::format("{}/{}", of_.name, which);
    options_.keeps_for_shrink = chance_.percent(50);
    draw_ = chance_.below(12);
    (this->*kScenarios[which])();
    const std::string right = "right";
    const auto answers = meet("end", wrong_.empty() ? right : "wrong");
    if (!wrong_.empty())
      wrong_ = fmt::format("a group of {} ranks (scenario {}, rank {} is another one): rank {} {}",
                           of_.size, which, culprit_, of_.rank, wrong_);
    return std::all_of(answers.begin(), answers.end(),
                       [&](const std::string& answer) { return answer == right; });
  }

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

  // ---- Scenarios ----

  // All ranks learn soon who has given up, and why (F5).
  void user_gives_up() {
    auto group = connected();
    if (group == nullptr) return;
    // The user may pass on what another group has failed with. Its ranks may be other ones (F7).
    Failure cause;
    cause.code = Code::kUserFailure;
    cause.detail = kWords;
    const bool is_of_other_group = draw_ % 3 == 0;
    if (is_of_other_group) {
      cause.code = Code::kPeerLost;
      cause.rank = (culprit_ + 1) % of_.size;
      cause.suspect = draw_ < 6 ? kNone : cause.rank;
    }
    if (is_culprit_) {
      virtual_sleep(kWhile);
      group->abort(Status(cause));
      const int rank = is_of_other_group ? cause.rank : culprit_;
      expect_told(group->health(), {cause.code, rank, {}, kWords, !is_of_other_group});
      expect_kept(*group);
    } else {
      const int suspect = cause.suspect == kNone ? culprit_ : cause.suspect;
      const std::string words = fmt::format("rank {} aborted the group: ", culprit_);
      expect_both_told(*group, {Code::kAborted, culprit_, suspect, words}, false,
                       [this](Duration took, const Status& status) { expect_soon(took, status); });
      expect_told(group->health(), {Code::kAborted, culprit_, suspect, kWords});
    }
    end_failed(std::move(group));
  }

  // The first error is the cause on all ranks; the second rank attaches what it saw itself.
  void calls_fail_on_two() {
    const bool is_header = draw_ < 6;
    const int second = (culprit_ + 1) % of_.size;
    auto group = connected();
    if (group == nullptr) return;
    here().result = kOwnErrors[draw_ % kOwnErrors.size()].result;
    if (is_culprit_) here().fails = is_header ? "ncclAllGather" : "ncclAllReduce";
    if (of_.rank == second) {
      virtual_sleep(kWhile);
      here().fails = "ncclAllGather";
    }
    const std::string_view name = kOwnErrors[draw_ % kOwnErrors.size()].name;
    const std::string words = is_header ? "the exchange of headers" : "ncclAllReduce";
    expect_both_told(*group, {Code::kTransport, culprit_, {}, words, true}, true,
                     [this](Duration took, const Status& status) { expect_soon(took, status); });
    const Status status = group->health();
    if (!status.ok())
      expect(status.failure().detail.find(fmt::format("({})", name)) != std::string::npos,
             fmt::format("does not say '{}'", name), status);
    if (of_.rank == second && !status.ok())
      expect(attaches(status.failure(), fmt::format("rank {}: ", second)),
             "does not attach what it saw itself", status);
    end_failed(std::move(group));
  }

  // The other ranks agree on one cause. The silent rank, whose call fails then, knows better, and
  // attaches what the others say.
  void rank_is_silent() {
    auto group = connected();
    if (group == nullptr) return;
    if (is_culprit_) {
      virtual_sleep(kTimeout + kWhile);
      here().fails = "ncclAllGather";
      expect_both_told(*group, {Code::kTransport, culprit_, {}, "the exchange of headers", true},
                       true,
                       [this](Duration took, const Status& status) { expect_soon(took, status); });
    } else {
      expect_both_told(
          *group, {Code::kTimeout, {}, kNone, kUnentered}, true,
          [this](Duration took, const Status& status) { expect_timeout(took, status); });
    }
    const Status status = group->health();
    const Failure failure = status.ok() ? Failure() : status.failure();
    if (is_culprit_)
      expect(attaches(failure, "not done within"), "does not attach what the others say", status);
    const auto causes = meet("cause", std::to_string(failure.rank));
    for (int rank = 0; rank < of_.size && !is_culprit_; ++rank)
      if (rank != culprit_)
        expect(causes[static_cast<std::size_t>(rank)] == std::to_string(failure.rank),
               fmt::format("names another rank than rank {}", rank), status);
    end_failed(std::move(group));
  }

  // A rank that waits for one that has left has an error that says so.
  void rank_has_left() {
    options_.keeps_for_shrink = false;  // what hides errors cannot be revoked
    auto group = connected();
    if (group == nullptr) return;
    if (draw_ < 6) sum_well(*group);
    meet("summed");
    if (is_culprit_) {
      end_idle(std::move(group));
      meet("left");
      static_cast<void>(meet("failed"));
      return;
    }
    here().hides_errors = true;
    meet("left");
    const std::string words = fmt::format("{}; rank {} has left the group", kUnentered, culprit_);
    // A further call would return the error.
    expect_both_told(
        *group, {Code::kTimeout, {}, culprit_, words}, true,
        [this](Duration took, const Status& status) { expect_timeout(took, status); }, 1);
    end_failed(std::move(group));
  }

  // A collective that is queued waits for those before it, and has its own time then (F1).
  void rank_is_late() {
    auto group = connected();
    if (group == nullptr) return;
    constexpr Duration kMost = kTimeout * 6 / 10;
    Started first;
    Started second;
    const std::uint64_t before = group->progress();
    if (is_culprit_) virtual_sleep(kMost);
    first.start(*group);
    if (is_culprit_) virtual_sleep(kMost);
    second.start(*group);
    const Status one = end_of(*group, first);
    expect(one.ok(), "cannot wait for a rank that is late", one);
    const std::uint64_t between = group->progress();
    const Status other = end_of(*group, second);
    expect(other.ok(), "gives its second sum less than a timeout", other);
    expect(before != between, "has made no progress with its first sum");
    if (wrong_.empty()) end_idle(std::move(group));
  }

  // More collectives are queued than a group submits at once, or has memory for at first. They end
  // in their order when the last rank comes; if it gives up instead, each error names its own.
  void many_are_queued() {
    const bool gives_up = draw_ < 4;
    auto group = connected();
    if (group == nullptr) return;
    std::vector<Started> all(20 + chance_.below(20));
    const std::uint64_t before = group->progress();
    if (is_culprit_) virtual_sleep(kWhile);
    if (is_culprit_ && gives_up) group->abort(Status(Code::kUserFailure, kWords));
    for (std::size_t i = 0; i < all.size() && !(is_culprit_ && gives_up); ++i) {
      all[i].value = static_cast<float>(i + 1);
      all[i].start(*group);
    }
    for (std::size_t i = 0; i < all.size() && !(is_culprit_ && gives_up); ++i) {
      const Status status = end_of(*group, all[i]);
      const auto number = static_cast<std::int64_t>(i);
      if (gives_up) {
        expect_told(status, {Code::kAborted, culprit_, culprit_, kWords});
        expect(status.ok() || status.failure().sequence == number, "names another collective",
               status);
        continue;
      }
      expect(status.ok(), fmt::format("has an error of collective {}", i), status);
      const float right = static_cast<float>(i + 1) * static_cast<float>(of_.size);
      expect(all[i].value == right, fmt::format("has a wrong sum of collective {}", i));
      expect(i == 0 || all[i].work.completed_at() >= all[i - 1].work.completed_at(),
             "ends collectives in another order");
      expect(all[i].work.sequence() == number, "numbers collectives differently");
    }
    if (gives_up) return end_failed(std::move(group));
    expect(group->progress() - before == all.size(), "counts other collectives as ended");
    meet("summed");
    end_idle(std::move(group));
  }

  void nothing_is_taken() {
    auto group = connected();
    if (group == nullptr) return;
    here().takes_nothing = is_culprit_;
    if (!is_culprit_) virtual_sleep(kWhile);
    // Nothing else happens in the group that would make it look.
    const std::size_t count = is_culprit_ ? 1 : 2;
    expect_both_told(
        *group, {Code::kTimeout, culprit_, kNone, "; NCCL has not taken it yet"}, true,
        [this](Duration took, const Status& status) {
          expect_timeout(is_culprit_ ? took : took + kWhile, status);
        },
        count);
    end_failed(std::move(group));
  }

  // The headers have said that all are in it.
  void sum_is_lost() {
    auto group = connected();
    if (group == nullptr) return;
    here().loses_sums = is_culprit_;
    if (is_culprit_) {
      Started sum;
      sum.start(*group);
      const Status status = end_of(*group, sum);
      expect(status.ok(), "cannot do what NCCL does at once", status);
    } else {
      expect_both_told(
          *group, {Code::kTimeout, {}, kNone, "; all ranks have entered it"}, true,
          [this](Duration took, const Status& status) { expect_timeout(took, status); });
    }
    end_failed(std::move(group));
  }

  void rank_does_not_come() {
    if (is_culprit_) return;
    const Duration begun = platform::now();
    const auto made = connect();
    const Status status = made ? Status() : made.error();
    const std::string words =
        culprit_ == 0 ? std::string() : fmt::format("; rank {} has not come", culprit_);
    expect_told(status, {Code::kTimeout, {}, culprit_, words});
    if (culprit_ != 0 && !status.ok())
      expect(status.failure().detail.ends_with(words), "misses other ranks, too", status);
    expect_timeout(platform::now() - begun, status);
  }

  // The communicator's id is damaged on its way from rank 0.
  void id_is_damaged() {
    store_->damages_id = true;
    const Duration begun = platform::now();
    const auto made = connect();
    const Status status = made ? Status() : made.error();
    expect_told(status, {Code::kPeerLost, {}, {}, "a peer has ended the group, and "});
    expect_soon(platform::now() - begun, status);
  }

  void rank_cannot_connect() {
    if (culprit_ == 0 && draw_ > 9) return id_is_damaged();
    const bool has_no_id = culprit_ == 0 && draw_ < 6;
    const std::string words = has_no_id ? "ncclGetUniqueId" : "ncclCommInitRankConfig";
    const OwnError error = kOwnErrors[draw_ % kOwnErrors.size()];
    constexpr const char* kLastError = "something is broken";
    if (is_culprit_) {
      here().fails = words;
      here().result = error.result;
      here().last_error = kLastError;
    }
    const Duration begun = platform::now();
    const auto made = connect();
    const Status status = made ? Status() : made.error();
    expect_told(status, {Code::kTransport, culprit_, {}, words, true});
    expect_told(status, {Code::kTransport,
                         culprit_,
                         {},
                         fmt::format("({}); NCCL's last error: {}", error.name, kLastError),
                         true});
    expect_soon(platform::now() - begun, status);
  }

  // A rank that goes on alone has nobody to compare anything with.
  void goes_on_alone(std::unique_ptr<NcclProcessGroup> group) {
    meet("summed");
    if (!is_culprit_) return end_idle(std::move(group));
    std::vector<int> others;
    for (int rank = 0; rank < of_.size; ++rank)
      if (rank != culprit_) others.push_back(rank);
    options_.name += "/alone";
    auto alone = NcclProcessGroup::shrink(*group, others, store_, options_);
    if (!expect(alone.has_value(), "cannot go on alone", alone ? Status() : alone.error())) return;
    expect((*alone)->rank() == 0 && (*alone)->size() == 1, "is not alone");
    const int before = here().gathers;
    sum_well(**alone);
    expect(here().gathers == before, "gathers headers of no other rank");
    end_idle(std::move(group));
    end_idle(std::move(*alone));
  }

  // A smaller group of all ranks is a new one.
  void nobody_is_excluded() {
    auto group = connected();
    if (group == nullptr) return;
    sum_well(*group);
    if (draw_ < 6) return goes_on_alone(std::move(group));
    options_.name += "/again";
    auto again = NcclProcessGroup::shrink(*group, {}, store_, options_);
    if (!expect(again.has_value(), "cannot make its group anew", again ? Status() : again.error()))
      return;
    expect((*again)->origin() == std::string_view("ncclCommInitRankConfig"),
           fmt::format("says that '{}' made its communicator", (*again)->origin()));
    end_idle(std::move(group));
    sum_well(**again);
    meet("summed");
    end_idle(std::move(*again));
  }

  // A rank that is late itself suspects nobody: those that have left had done their part (F2).
  void expect_own_timeout(NcclProcessGroup& group, Started& started) {
    const Status status = end_of(group, started);
    expect_told(status, {Code::kTimeout, of_.rank, kNone, "; all ranks have entered it"});
    expect_timeout(started.took(), status);
    if (status.ok()) return;
    expect(status.failure().detail.find("has left") == std::string::npos,
           "says that a rank has left that had done its part", status);
  }

  // The ranks that are done make a smaller group, or leave, while the last rank is still in the
  // last collective.
  void others_go_on() {
    const bool shrinks = draw_ < 5;
    const bool is_too_late = draw_ > 8;
    auto group = connected();
    if (group == nullptr) return;
    const bool is_last = of_.rank == of_.size - 1;
    if (is_last) here().delay = is_too_late ? kTimeout + kWhile : kWhile;
    Started started;
    started.value = of_.rank == 0 ? 5.0F : 0.0F;
    started.start(*group, Op::kBroadcast);
    if (is_last && is_too_late) return expect_own_timeout(*group, started);
    if (!is_last || !shrinks) {
      const Status status = end_of(*group, started);
      expect(status.ok() && started.value == 5.0F, "cannot take part in a broadcast", status);
    }
    if (!shrinks) return end_idle(std::move(group));
    if (is_last) {
      const Status status = end_of(*group, started);
      expect(status.ok() && started.value == 5.0F,
             "has lost what it was sent before the others made a smaller group", status);
      return end_idle(std::move(group));
    }
    options_.name += "/smaller";
    auto smaller = NcclProcessGroup::shrink(*group, {of_.size - 1}, store_, options_);
    if (!expect(smaller.has_value(), "cannot make a smaller group",
                smaller ? Status() : smaller.error()))
      return;
    end_idle(std::move(group));
    sum_well(**smaller);
  }

  // Nobody needs the report to learn that the rank is lost.
  void report_is_damaged_or_slow() {
    const bool is_slow = draw_ < 6 && of_.notices_lost_peers;
    options_.keeps_for_shrink = options_.keeps_for_shrink && !is_slow;
    auto group = connected();
    if (group == nullptr) return;
    if (is_culprit_) {
      if (is_slow) store_->delay = kTimeout * 8 / 10;
      store_->damages = !is_slow;
      virtual_sleep(kWhile);
      group->abort(Status(Code::kUserFailure, kWords));
    } else {
      const int suspect = of_.size == 2 ? culprit_ : kNone;
      const std::string words = is_slow ? "" : "a peer has ended the group, and ";
      expect_both_told(*group, {Code::kPeerLost, kNone, suspect, words}, is_slow,
                       [this](Duration took, const Status& status) { expect_soon(took, status); });
    }
    end_failed(std::move(group));
  }

  // The rank that the others have left starts one more collective, also as the first one of all.
  void one_more_is_started() {
    const int last = of_.size - 1;
    auto group = connected();
    if (group == nullptr) return;
    for (std::uint32_t i = 0; i < draw_ % 3; ++i) sum_well(*group);
    meet("summed");
    if (of_.rank == last) {
      meet("smaller");
      Started sum;
      sum.start(*group);
      const Status status = end_of(*group, sum);
      expect_told(status, {Code::kAborted, {}, {}, "makes a smaller group"});
      expect_soon(sum.took(), status);
      if (!status.ok())
        expect(status.failure().rank >= 0 && status.failure().rank < last,
               "does not name a rank that has made a smaller group", status);
      static_cast<void>(meet("failed"));
      return;
    }
    options_.name += "/smaller";
    auto smaller = NcclProcessGroup::shrink(*group, {last}, store_, options_);
    meet("smaller");
    static_cast<void>(meet("failed"));
    if (!expect(smaller.has_value(), "cannot make a smaller group",
                smaller ? Status() : smaller.error()))
      return;
    group.reset();
    sum_well(**smaller);
  }

  // Where one rank has something in flight, all ranks end the old group as one that has failed.
  void shrunk_while_busy() {
    options_.keeps_for_shrink = true;
    auto group = connected();
    if (group == nullptr) return;
    sum_well(*group);
    meet("summed");
    const bool is_last = of_.rank == of_.size - 1;
    if (is_last) {
      meet("smaller");
      group.reset();
      return;
    }
    Started started;
    if (of_.rank == 0) started.start(*group);
    virtual_sleep(kWhile);
    options_.name += "/smaller";
    auto smaller = NcclProcessGroup::shrink(*group, {of_.size - 1}, store_, options_);
    if (of_.rank == 0) {
      expect(started.work.done(), "has made a smaller group, and something is in flight");
      // Another rank may have begun before.
      expect_told(end_of(*group, started), {Code::kAborted, {}, {}, "makes a smaller group"});
    }
    meet("smaller");
    if (!expect(smaller.has_value(), "cannot make a smaller group",
                smaller ? Status() : smaller.error()))
      return;
    if (api_.comm_shrink != nullptr && api_.comm_revoke != nullptr)
      expect((*smaller)->origin() == std::string_view("ncclCommShrink"),
             "has not kept its communicator for a smaller group");
    if (here().flags != kNone)
      expect(here().flags == kNcclShrinkAbort, "lets NCCL shrink as if nothing were in flight");
    sum_well(**smaller);
    group.reset();
    expect(here().destroyed == 0 && here().aborted == 1,
           "destroys a communicator that has something in flight on another rank");
    smaller->reset();
  }

  // The last rank leaves, and one of the others makes no smaller group: the ranks that wait for it
  // suspect it.
  void rank_does_not_shrink() {
    const int absent = culprit_ % (of_.size - 1);
    auto group = connected();
    if (group == nullptr) return;
    options_.name += "/smaller";
    if (of_.rank != absent && of_.rank != of_.size - 1) {
      const Duration begun = platform::now();
      auto smaller = NcclProcessGroup::shrink(*group, {of_.size - 1}, store_, options_);
      const Status status = smaller ? Status() : smaller.error();
      expect_told(status, {Code::kTimeout, {}, absent, ""});
      expect_timeout(platform::now() - begun, status);
    }
    meet("smaller");
  }

  // A rank whose communicator is not aborted in time ends all the same, and says what goes on. The
  // memory of its collective may be released then; it is not given out while the GPU uses it (F8).
  void abort_takes_long() {
    options_.keeps_for_shrink = false;
    options_.end_timeout = kTimeout / 5;
    const int silent = (culprit_ + 1) % of_.size;
    auto group = connected();
    if (group == nullptr) return;
    if (is_culprit_) here().abort_takes = 3 * options_.end_timeout;
    if (of_.rank == silent) {
      meet("failed");
      return;
    }
    Result<Ref<Storage>> memory = gpu_.allocate(sizeof(float));
    if (!expect(memory.has_value(), "has no memory", memory ? Status() : memory.error())) return;
    Started sum;
    sum.collective.device = &gpu_;
    sum.collective.data = (*memory)->data();
    sum.collective.verify = draw_ < 6;
    sum.collective.ready = gpu_.record(gpu_.current_stream());
    sum.start(*group);
    if (is_culprit_) {
      virtual_sleep(kWhile);
      group->abort(Status(Code::kUserFailure, kWords));
    }
    const Status status = end_of(*group, sum);
    *memory = {};
    expect_soon(sum.took(), status);
    const Code code = is_culprit_ ? Code::kUserFailure : Code::kAborted;
    const std::optional<int> suspect = is_culprit_ ? kNone : culprit_;
    expect_told(status, {code, culprit_, suspect, kWords, is_culprit_});
    const Failure failure = status.ok() ? Failure() : status.failure();
    const std::string words = fmt::format(
        "ncclCommAbort did not return within {} ms: memory of what was in flight must "
        "not be used again",
        options_.end_timeout / milliseconds(1));
    expect(attaches(failure, words) == is_culprit_, "does not say, or says, that its abort goes on",
           status);
    end_failed(std::move(group));
  }

  // A communicator that cannot be finalized in time is aborted.
  void leaving_takes_long() {
    options_.end_timeout = kTimeout;
    auto group = connected();
    if (group == nullptr) return;
    sum_well(*group);
    meet("summed");
    if (!is_culprit_) return end_idle(std::move(group));
    here().takes_nothing = true;
    const Duration begun = platform::now();
    group.reset();
    expect_timeout(platform::now() - begun, Status());
    expect(here().destroyed == 0 && here().aborted == 1,
           fmt::format("ends a communicator that cannot be finalized with {} of ncclCommDestroy "
                       "and {} of ncclCommAbort",
                       here().destroyed, here().aborted));
  }

  // ---- Payloads ----

  Payload drawn_payload() {
    constexpr std::array<DType, 7> kTypes{DType::kFloat32,  DType::kFloat64, DType::kFloat16,
                                          DType::kBFloat16, DType::kInt32,   DType::kByte,
                                          DType::kComplex64};
    constexpr std::array<Op, 3> kOps{Op::kAllReduceSum, Op::kBroadcast, Op::kAllGather};
    const auto size = static_cast<std::uint32_t>(of_.size);
    Payload payload;
    payload.op = kOps[chance_.below(3)];
    payload.dtype = kTypes[chance_.below(payload.op == Op::kAllReduceSum ? 5 : 7)];
    payload.reduction = chance_.percent(50) ? Reduction::kRankOrdered : Reduction::kNative;
    const std::array<std::uint32_t, 5> counts{0, 1, chance_.below(2 * size + 2), 2 * size,
                                              chance_.below(70)};
    payload.count = counts[chance_.below(5)];
    if (is_header(payload.bytes())) ++payload.count;
    payload.root = static_cast<int>(chance_.below(size));
    payload.is_on_gpu = chance_.percent(50);
    payload.is_verified = chance_.percent(50);
    return payload;
  }

  // Runs it, and returns how it has ended. Where that is well, the result is right, and nothing
  // beside it has changed (G10).
  Status carry_out(NcclProcessGroup& group, const Payload& payload) {
    constexpr std::byte kGuard{0x5a};
    constexpr std::size_t kGuards = 8;
    const bool is_gather = payload.op == Op::kAllGather;
    const std::vector<std::byte> right = payload.result(group.size());
    std::vector<std::byte> data = payload.sent(group.rank());
    data.resize(data.size() + kGuards, kGuard);
    std::vector<std::byte> gathered(is_gather ? right.size() + kGuards : kGuards, kGuard);
    Started started;
    Collective& it = started.collective;
    it.dtype = payload.dtype;
    it.reduction = payload.reduction;
    it.verify = payload.is_verified;
    it.root = payload.root;
    it.data = data.data();
    it.gathered = gathered.data();
    Ref<Storage> on_gpu;
    Ref<Storage> gathered_on_gpu;
    if (payload.is_on_gpu) {
      on_gpu = *gpu_.allocate(data.size());
      gathered_on_gpu = *gpu_.allocate(gathered.size());
      write(gpu_, data, on_gpu->data(), Deadline::in(kNever)).ignore();
      write(gpu_, gathered, gathered_on_gpu->data(), Deadline::in(kNever)).ignore();
      it.device = &gpu_;
      it.data = on_gpu->data();
      it.gathered = gathered_on_gpu->data();
      it.ready = gpu_.record(gpu_.current_stream());
    }
    started.start(group, payload.op, payload.count);
    Status status = end_of(group, started);
    if (!status.ok()) return status;
    if (payload.is_on_gpu) {
      read(gpu_, on_gpu->data(), data, Deadline::in(kNever)).ignore();
      read(gpu_, gathered_on_gpu->data(), gathered, Deadline::in(kNever)).ignore();
    }
    std::vector<std::byte> wanted = is_gather ? payload.sent(group.rank()) : right;
    wanted.resize(wanted.size() + kGuards, kGuard);
    std::vector<std::byte> wanted_gathered = is_gather ? right : std::vector<std::byte>();
    wanted_gathered.resize(wanted_gathered.size() + kGuards, kGuard);
    expect(
        data == wanted && gathered == wanted_gathered,
        fmt::format("has a wrong result of '{} of {} {}{}{}'", name_of(payload.op), payload.count,
                    lockstep::name_of(payload.dtype), payload.is_on_gpu ? " on the GPU" : "",
                    payload.is_verified ? ", verified" : ""));
    return status;
  }

  // A group that was made smaller, or of all ranks: then it is as good as that of another run.
  std::unique_ptr<NcclProcessGroup> another_group(bool is_smaller, const char* name) {
    options_.name = name_ + "/" + name;
    auto group = connected();
    if (group == nullptr || !is_smaller) return group;
    const int last = of_.size - 1;
    if (of_.rank == last) {
      meet(name);
      end_idle(std::move(group));
      return {};
    }
    options_.name += "/smaller";
    auto smaller = NcclProcessGroup::shrink(*group, {last}, store_, options_);
    meet(name);
    if (!expect(smaller.has_value(), "cannot make a smaller group",
                smaller ? Status() : smaller.error()))
      return {};
    end_idle(std::move(group));
    return std::move(*smaller);
  }

  // What is sent arrives, whatever its kind, dtype, size and place. Of a verified collective, a
  // byte that changes on the way of one rank's payload is noticed by the rank that receives it, and
  // so is an earlier payload of this group or of another one (F3).
  void payloads_are_checked() {
    const bool is_smaller = of_.size > 2 && draw_ % 2 == 0;
    const bool replays = is_smaller || draw_ % 4 == 1;
    const bool is_of_other_group = is_smaller || draw_ < 6;
    const int sender = is_smaller ? culprit_ % (of_.size - 1) : culprit_;
    const std::array<Payload, 2> first{drawn_payload(), drawn_payload()};
    Payload last = drawn_payload();
    last.is_verified = true;
    last.count = chance_.percent(30) ? 1 : std::max<std::size_t>(last.count, 1);
    if (is_smaller) last.root %= of_.size - 1;
    const int size = is_smaller ? of_.size - 1 : of_.size;
    const int sends = (size - 1) * (last.op == Op::kAllGather ? 1 : 2);
    const bool is_sender = of_.rank == sender;
    Tampering& tampering = here().tampering;
    tampering.number = static_cast<int>(chance_.below(static_cast<std::uint32_t>(sends)));
    tampering.place = chance_.word();
    tampering.change = std::byte(1 + chance_.below(255));

    auto group = another_group(is_smaller, "first");
    if (group != nullptr && !is_smaller)
      for (const Payload& payload : first) {
        const Status status = carry_out(*group, payload);
        expect(status.ok(), "cannot carry out a collective", status);
      }
    if (group != nullptr && replays) {
      if (is_sender) tampering.kind = Tampering::Kind::kRecords;
      const Status status = carry_out(*group, last);
      expect(status.ok(), "cannot carry out a verified collective", status);
    }
    tampering.kind = Tampering::Kind::kNone;
    meet("carried out");
    if (replays && is_of_other_group) {
      if (group != nullptr) end_idle(std::move(group));
      group = another_group(is_smaller, "second");
      // Its collectives have the numbers that those of the first one had.
      if (group != nullptr && !is_smaller)
        for (const Payload& payload : first)
          expect(carry_out(*group, payload).ok(), "cannot carry out a collective");
    }
    tampering.sends = 0;
    here().destroyed = here().aborted = 0;
    if (is_sender) tampering.kind = replays ? Tampering::Kind::kReplays : Tampering::Kind::kFlips;
    Status status;
    if (group != nullptr) status = carry_out(*group, last);
    const auto receivers = meet("received", std::to_string(tampering.receiver));
    tampering.kind = Tampering::Kind::kNone;
    if (group == nullptr) return static_cast<void>(meet("failed"));
    // Others may have received everything by then, or not.
    const int receiver = std::atoi(receivers[static_cast<std::size_t>(sender)].c_str());
    expect(receiver != kNone, "does not send each rank its part of a verified payload");
    if (of_.rank == receiver || !status.ok())
      expect_told(status, {Code::kCorrupted, receiver, sender, "is not what was to be sent", true});
    end_failed(std::move(group));
  }

  // ---- Notes ----

  // What nobody has written who has left, or made a smaller group, is no reason to fail, and nobody
  // is suspected for it (F2).
  void notes_are_damaged() {
    const bool is_about_leaving = draw_ < 3;
    const std::string of_no_rank = fmt::format("{} 0", of_.size);
    const std::array<std::string, 6> of_shrinks{"", "x", "-1 0", "0 -1", of_no_rank, of_no_rank};
    const std::array<std::string, 3> of_leaving{"", "x", "-1"};
    const std::uint32_t which = chance_.below(6);
    const std::string& note = is_about_leaving ? of_leaving[which % 3] : of_shrinks[which];
    options_.keeps_for_shrink = false;
    auto group = connected();
    if (group == nullptr) return;
    const std::string key = is_about_leaving ? fmt::format("/left/{}", culprit_) : "/shrinks";
    if (is_culprit_) static_cast<void>(store_->set(name_ + key, note));
    meet("written");
    if (!is_about_leaving) {
      if (is_culprit_) virtual_sleep(kWhile);  // The other ranks look meanwhile.
      sum_well(*group);
      meet("summed");
      return end_idle(std::move(group));
    }
    here().hides_errors = true;
    if (!is_culprit_) {
      Started sum;
      sum.start(*group);
      const Status status = end_of(*group, sum);
      expect_told(status, {Code::kTimeout, {}, kNone, kUnentered});
      if (!status.ok())
        expect(status.failure().detail.find("has left") == std::string::npos,
               "says that a rank has left that has not", status);
    }
    end_failed(std::move(group));
  }

  const GroupOfCheck of_;
  Device& gpu_;
  const NcclApi api_;
  const std::shared_ptr<ReportStore> store_;
  properties::Random chance_;
  NcclOptions at_first_;
  // These are drawn anew for each scenario.
  std::string name_;
  NcclOptions options_;
  std::uint32_t draw_ = 0;
  int culprit_ = 0;
  bool is_culprit_ = false;
  std::string wrong_;
};

}  // namespace

std::uint32_t scenario_of(std::uint32_t key) {
  return properties::Random(key, 0, "scenario").below(kGroupScenarios);
}

std::string wrongly_told(const NcclApi& api, Device& gpu, std::shared_ptr<Store> store,
                         const GroupOfCheck& of) {
  return GroupCheck(api, gpu, std::move(store), of).run();
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
