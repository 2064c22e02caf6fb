// This component checks what a group that goes through host memory (reducer/comm/staged_group.h)
// reports when its GPU is late or does not answer, when memory is refused, and when the group
// below it refuses a collective or fails. Several collectives are in flight then, some of them
// on host memory. Each must end in time (F1), with the right bits (F3) or with an error that
// names it and this rank (F2). After an error nothing may succeed, and no memory may be freed
// that the GPU still uses (F8).
#include "reducer/comm/staged_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "faults/sim/device/sim_device.h"
#include "faults/sim/scheduler/scheduler.h"
#include "properties/components/checks.h"
#include "properties/components/virtual_sleep.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

using platform::Deadline;
using platform::Duration;
using std::chrono::milliseconds;

constexpr Duration kStagedTimeout = std::chrono::seconds(2);
constexpr Duration kLong = std::chrono::hours(1);
constexpr Duration kStep = milliseconds(3);  // of the GPU, and of the group below
constexpr const char* kLost = "rank 1 is gone";

// The group below: the other ranks have the same data, and a root has hundreds. It carries each
// collective out in start().
class HostGroup final : public ProcessGroup {
 public:
  explicit HostGroup(int size) : size_(size) {}
  // Refuses a collective with an error that names nothing, or fails in it.
  void refuse(std::int64_t number, Code code) {
    refused_ = number;
    refusal_ = code;
  }
  void fail(std::int64_t number) { failing_ = number; }

  int rank() const override { return 0; }
  int size() const override { return size_; }
  bool can_reduce(DType) const override { return true; }
  Status start(const Collective& collective, Work& work) override {
    virtual_sleep(kStep);
    if (!cause_.ok()) {
      Status refusal = cause_;
      note_collective(refusal.failure(), collective, next_);
      return refusal;
    }
    if (next_ == refused_) return refused();
    work.begin(next_++);
    if (work.sequence() == failing_) cause_ = lost(collective);
    if (cause_.ok()) carry_out(collective);
    work.complete(cause_);
    return {};
  }
  void abort(const Status& cause) override {
    if (cause_.ok()) cause_ = cause;
  }
  Status health() const override { return cause_; }
  Duration timeout() const override { return kStagedTimeout; }

 private:
  Status refused() const {
    Failure failure;
    failure.code = refusal_;
    failure.detail = "the group below refuses it";
    return failure;
  }
  Status lost(const Collective& collective) const {
    Failure failure;
    failure.code = Code::kPeerLost;
    failure.suspect = 1;
    failure.reported_by = rank();
    failure.detail = kLost;
    note_collective(failure, collective, failing_);
    return failure;
  }
  void carry_out(const Collective& collective) const {
    auto* const values = reinterpret_cast<float*>(collective.data);
    const auto count = static_cast<std::size_t>(collective.count);
    if (collective.op == Op::kAllReduceSum)
      std::for_each_n(values, count, [this](float& value) { value *= static_cast<float>(size_); });
    else if (collective.op == Op::kBroadcast && collective.root != rank())
      std::fill_n(values, count, static_cast<float>(100 * collective.root));
    else if (collective.op == Op::kAllGather)
      for (int rank = 0; rank < size_; ++rank)
        std::copy_n(
            values, count,
            reinterpret_cast<float*>(collective.gathered) + static_cast<std::size_t>(rank) * count);
  }

  const int size_;
  std::int64_t next_ = 0;
  std::int64_t refused_ = kNone;
  std::int64_t failing_ = kNone;
  Code refusal_ = Code::kOutOfMemory;
  Status cause_;
};

struct Staged {
  Op op = Op::kAllReduceSum;
  int root = 0;
  std::size_t count = 0;
  bool is_on_gpu = true;
  Ref<Storage> data;
  Ref<Storage> gathered;
  std::vector<float> host_data;
  std::vector<float> host_gathered;
  Status refusal;
  Work work;
  Status status;
};

class StagedCase {
 public:
  explicit StagedCase(Choices& choices) : chance_(choices) {
    kind_ = static_cast<Kind>(chance_.below(kKinds));
    size_ = 1 + draw(4);
    all_ = std::vector<Staged>(chance_.between(1, 5));
    which_ = draw(all_.size());
    number_ = 1 + draw(2);
    fails_twice_ = chance_.percent(50);
    for (Staged& each : all_) {
      constexpr Op kOps[] = {Op::kAllReduceSum, Op::kBroadcast, Op::kAllGather};
      each.op = kOps[draw(3)];
      each.root = draw(static_cast<std::size_t>(size_));
      each.count = chance_.below(9);
      each.is_on_gpu = !chance_.percent(25);
    }
  }

  std::string judge() {
    simulated::SimDevice gpu(device_options());
    auto below = std::make_shared<HostGroup>(size_);
    if (kind_ == Kind::kIsRefused)
      below->refuse(which_, fails_twice_ ? Code::kOutOfMemory : Code::kInvalidArgument);
    if (kind_ == Kind::kFails) below->fail(which_);
    run(gpu, below);
    if (wrong_.empty() && !gpu.findings().empty()) wrong_ = gpu.findings().front().to_string();
    const bool may_keep = kind_ == Kind::kIsLate || kind_ == Kind::kWaitFails;
    expect(may_keep || gpu.streams_in_use() == 0, "it keeps its stream of the GPU");
    return wrong_;
  }

 private:
  enum class Kind : std::uint8_t {
    kGoesWell,
    kIsLate,       // the GPU takes longer than the timeout
    kWaitFails,    // a wait for the GPU fails, or two do
    kIsShort,      // pinned memory is refused
    kIsRefused,    // the group below refuses a collective
    kFails,        // the group below fails in it
    kIsDestroyed,  // while collectives are in flight
  };
  static constexpr std::uint32_t kKinds = 7;

  int draw(std::size_t limit) {
    return static_cast<int>(chance_.below(static_cast<std::uint32_t>(limit)));
  }
  bool expect(bool is_right, const std::string& what, const Status& status = {}) {
    if (!is_right && wrong_.empty()) wrong_ = status.ok() ? what : what + ": " + status.to_string();
    return is_right;
  }

  // ---- The GPU ----

  simulated::DeviceOptions device_options() {
    simulated::DeviceOptions options;
    options.duration = [this](const Stream&, std::string_view, std::size_t bytes) {
      if (!is_running_ || bytes == 0) return Duration(0);
      return kind_ == Kind::kIsLate ? 3 * kStagedTimeout : kStep;
    };
    options.refuses = [this] {
      if (kind_ != Kind::kIsShort || starting_ != which_) return false;
      const bool is_refused = ++requests_ == number_;
      was_refused_ |= is_refused;
      return is_refused;
    };
    options.fails_call = [this] {
      const std::string name(simulation::Scheduler::running()->current_name());
      if (kind_ != Kind::kWaitFails || name.find(" staged ") == std::string::npos) return false;
      const int nth = ++waits_ - which_;
      const bool fails = nth == 1 || (nth == 2 && fails_twice_);
      has_failed_ |= fails;
      return fails;
    };
    return options;
  }

  void prepare(simulated::SimDevice& gpu, Staged& each) const {
    const auto ranks = static_cast<std::size_t>(size_);
    each.host_data = values_of(each);
    each.host_gathered.resize(each.op == Op::kAllGather ? ranks * each.count : 0);
    if (!each.is_on_gpu) return;
    each.data = *gpu.allocate(each.count * sizeof(float));
    each.gathered = *gpu.allocate(each.host_gathered.size() * sizeof(float));
    write(gpu, std::as_bytes(std::span(each.host_data)), each.data->data(), Deadline::in(kLong))
        .ignore();
  }
  std::vector<float> values_of(const Staged& each) const {
    std::vector<float> values(each.count);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(i + 10 * static_cast<std::size_t>(&each - all_.data()));
    return values;
  }

  // ---- The collectives ----

  void start(StagedGroup& group, simulated::SimDevice& gpu, Staged& each) {
    Collective collective;
    collective.op = each.op;
    collective.root = each.root;
    collective.count = each.count;
    collective.data = reinterpret_cast<std::byte*>(each.host_data.data());
    collective.gathered = reinterpret_cast<std::byte*>(each.host_gathered.data());
    if (each.is_on_gpu) {
      collective.device = &gpu;
      collective.data = each.data->data();
      collective.gathered = each.gathered->data();
      collective.ready = gpu.record(gpu.current_stream());
    }
    starting_ = static_cast<int>(&each - all_.data());
    each.refusal = group.start(collective, each.work);
    starting_ = kNone;
  }

  void run(simulated::SimDevice& gpu, const std::shared_ptr<HostGroup>& below) {
    auto made = StagedGroup::create(below, gpu);
    if (!expect(made.has_value(), "it cannot be made")) return;
    std::unique_ptr<StagedGroup> group = std::move(*made);
    for (Staged& each : all_) prepare(gpu, each);
    is_running_ = true;
    const Duration begun = platform::now();
    refuse_wrong(*group, gpu);
    std::int64_t number = 0;
    for (Staged& each : all_) {
      start(*group, gpu, each);
      judge_start(each, number);
      if (each.refusal.ok()) ++number;
    }
    if (kind_ == Kind::kIsDestroyed) group.reset();
    bool has_failed = false;
    for (Staged& each : all_) {
      if (!each.refusal.ok()) continue;
      each.status = each.work.wait(Deadline::in(kLong));
      const Duration took = each.work.completed_at() - begun;
      expect(each.work.done() && took < kStagedTimeout * 3 / 2, "a collective takes too long",
             each.status);
      expect(!has_failed || !each.status.ok(), "a collective succeeds behind one that failed");
      has_failed |= !each.status.ok();
      if (each.status.ok()) {
        judge_result(gpu, each);
      } else {
        judge_error(each);
        each.data = each.gathered = {};  // The owner may do what he likes with it now.
      }
    }
    judge_end(has_failed);
    if (group != nullptr && has_failed) judge_refusal(*group, gpu, number);
    is_running_ = false;
    group.reset();
    for (Staged& each : all_) each.data = each.gathered = {};
  }

  // The group refuses a collective that no group can carry out before it asks the GPU, and does not
  // count it.
  void refuse_wrong(StagedGroup& group, simulated::SimDevice& gpu) {
    Collective fits;
    fits.count = 4;
    fits.device = &gpu;
    std::vector<Collective> wrong(4, fits);  // the first has elements, and no data
    const Ref<Storage> data = *gpu.allocate(fits.count * sizeof(float));
    for (std::size_t i = 1; i < wrong.size(); ++i) wrong[i].data = data->data();
    wrong[1].op = Op::kAllGather;
    wrong[2].op = Op::kBroadcast;
    wrong[2].root = size_;
    wrong[3].count = std::numeric_limits<std::uint64_t>::max() / 2;
    for (const Collective& each : wrong) {
      Work work;
      const Status status = group.start(each, work);
      expect(status.code() == Code::kInvalidArgument && work.done(),
             "it takes a collective that cannot be carried out", status);
    }
  }

  void judge_start(Staged& each, std::int64_t number) {
    if (each.refusal.ok()) {
      expect(each.work.sequence() == number, "it numbers a collective differently");
      expect(!std::exchange(was_refused_, false), "it starts a collective without memory for it");
      return;
    }
    expect(each.work.done(), "a collective that it refuses is in flight", each.refusal);
    const Failure& failure = each.refusal.failure();
    if (failure.code != Code::kOutOfMemory || kind_ == Kind::kIsRefused) {
      expect(kind_ != Kind::kGoesWell && kind_ != Kind::kIsShort, "it refuses a collective",
             each.refusal);
    } else {
      expect(std::exchange(was_refused_, false), "it has no memory, and nobody refused it",
             each.refusal);
    }
    expect(!failure.collective.empty() && failure.sequence >= 0,
           "it refuses a collective, and names none with its number", each.refusal);
    const bool is_first = kind_ == Kind::kIsShort;
    expect(!is_first || (failure.collective == name_of(each.op) && failure.sequence == number),
           "it refuses a collective, and names another one", each.refusal);
  }

  void judge_result(simulated::SimDevice& gpu, Staged& each) {
    const bool is_gather = each.op == Op::kAllGather;
    const std::size_t ranks = is_gather ? static_cast<std::size_t>(size_) : 1;
    std::vector<float> right;
    for (std::size_t rank = 0; rank < ranks; ++rank)
      for (const float value : values_of(each))
        right.push_back(each.op == Op::kAllReduceSum  ? value * static_cast<float>(size_)
                        : is_gather || each.root == 0 ? value
                                                      : static_cast<float>(100 * each.root));
    std::vector<float> got = is_gather ? each.host_gathered : each.host_data;
    if (each.is_on_gpu) {
      const Ref<Storage>& from = is_gather ? each.gathered : each.data;
      is_running_ = false;
      read(gpu, from->data(), std::as_writable_bytes(std::span(got)), Deadline::in(kLong)).ignore();
      is_running_ = true;
    }
    expect(got == right,
           fmt::format("an {} of {} elements has a wrong result", name_of(each.op), each.count));
  }

  // All errors are this rank's to report, and name a collective: this one or the first that failed.
  void judge_error(const Staged& each) {
    const Failure& failure = each.status.failure();
    expect(!failure.collective.empty() && failure.sequence >= 0 &&
               failure.sequence <= each.work.sequence() + static_cast<int>(all_.size()),
           "an error names no collective with its number", each.status);
    expect(failure.reported_by == 0, "an error is not reported by this rank", each.status);
    const auto is = [&](Code code, int rank, bool is_definite, std::string_view words) {
      expect(failure.code == code && failure.rank == rank && failure.definite == is_definite &&
                 failure.detail.find(words) != std::string::npos,
             "an error does not say what happened", each.status);
    };
    switch (kind_) {
      case Kind::kGoesWell:
      case Kind::kIsShort:
        expect(false, "a collective fails", each.status);
        break;
      case Kind::kIsLate:
        is(Code::kTimeout, 0, false, "is not done in time");
        break;
      case Kind::kWaitFails:
        is(Code::kTransport, 0, true, "a call to wait for an event fails");
        break;
      case Kind::kIsRefused:
        expect(failure.code == (fails_twice_ ? Code::kOutOfMemory : Code::kInvalidArgument),
               "an error does not say why a collective was refused", each.status);
        break;
      case Kind::kFails:
        is(Code::kPeerLost, kNone, false, kLost);
        expect(failure.suspect == 1, "an error does not suspect the rank that is gone",
               each.status);
        break;
      case Kind::kIsDestroyed:
        is(Code::kAborted, 0, true, "the process group was destroyed");
        break;
    }
  }

  void judge_end(bool has_failed) {
    const bool must_fail =
        has_failed_ || ((kind_ == Kind::kIsRefused || kind_ == Kind::kFails)) ||
        (kind_ == Kind::kIsLate && std::any_of(all_.begin(), all_.end(), [](const Staged& each) {
           return each.is_on_gpu && each.count > 0;
         }));
    expect(has_failed || !must_fail, "no collective fails, and one cannot be done");
  }

  // What has ended says so, and takes nothing more.
  void judge_refusal(StagedGroup& group, simulated::SimDevice& gpu, std::int64_t number) {
    expect(!group.health().ok(), "it has failed, and does not say so");
    Staged& again = all_.front();
    again.is_on_gpu = false;
    again.host_data.resize(again.count);
    again.host_gathered.resize(again.count * static_cast<std::size_t>(size_));
    start(group, gpu, again);
    if (!expect(!again.refusal.ok(), "it takes a collective after it has failed")) {
      again.work.wait(Deadline::in(kLong)).ignore();
      return;
    }
    const Failure& failure = again.refusal.failure();
    expect(!failure.collective.empty() && failure.sequence >= 0 && failure.sequence <= number,
           "it refuses a collective after it has failed, and names none", again.refusal);
  }

  Choices& chance_;
  Kind kind_ = Kind::kGoesWell;
  int size_ = 1;
  std::vector<Staged> all_;
  int which_ = 0;   // the collective, or the wait, at which something happens
  int number_ = 1;  // of the request for memory
  bool fails_twice_ = false;
  bool is_running_ = false;
  int starting_ = kNone;
  int requests_ = 0;
  int waits_ = 0;
  bool was_refused_ = false;
  bool has_failed_ = false;
  std::string wrong_;
};

}  // namespace

std::string check_staged_group(Choices& choices) { return StagedCase(choices).judge(); }

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
