#include "properties/components/nccl_calls.h"

#include <limits>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "faults/sim/device/sim_device.h"
#include "reducer/comm/store.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

constexpr platform::Duration kYear = std::chrono::hours(24 * 365);
constexpr platform::Duration kTick{1};
constexpr int kOtherGpu = 77;

class WrongCalls {
 public:
  WrongCalls(const NcclApi& api, Device& gpu, NcclProcessGroup& group)
      : api_(api), gpu_(gpu), group_(group), store_(std::make_shared<HashStore>()) {}

  std::string run() {
    try_other_communicators();
    try_results();
    try_name_again();
    try_collectives();
    try_places();
    try_times();
    try_smaller_groups();
    return wrong_;
  }

 private:
  void expect(const char* call, const Status& status, const std::string& words) {
    const bool is_right = status.code() == Code::kInvalidArgument &&
                          status.failure().detail.find(words) != std::string::npos;
    if (is_right || !wrong_.empty()) return;
    wrong_ = std::string(call) + " had to be refused with a text that has '" + words +
             "': " + status.to_string();
  }

  // ---- Collectives ----

  void refuse(const Collective& collective, const char* words) {
    Work work;
    const Status status = group_.start(collective, work);
    expect("a collective", status, words);
    if (!work.done() && wrong_.empty()) wrong_ = "a collective that was refused is in flight";
    if (status.ok()) (void)work.wait(platform::Deadline::never());
  }

  void try_collectives() {
    const int size = group_.size();
    Collective sum;
    sum.count = 1;
    sum.data = bytes_;
    const auto with = [](Collective collective, const auto& change) {
      change(collective);
      return collective;
    };
    refuse(with(sum, [](auto& c) { c.dtype = DType::kByte; }), "cannot sum");
    refuse(with(sum, [](auto& c) { c.factor = 0.5; }), "cannot scale");
    refuse(with(sum, [](auto& c) { c.data = nullptr; }), "no data");
    refuse(with(sum, [&](auto& c) { c.device = &other_gpu_; }), "not the group's");
    refuse(with(sum, [&](auto& c) { c.ready.device = &other_gpu_; }), "an event of another device");
    // A sum of no elements may have no data.
    refuse(with(sum,
                [&](auto& c) {
                  c.count = 0;
                  c.data = nullptr;
                  c.device = &other_gpu_;
                }),
           "not the group's");
    const auto most = std::uint64_t{std::numeric_limits<std::int64_t>::max()} / sizeof(float) /
                      static_cast<std::uint64_t>(size) / 4;
    const auto of_count = [&](std::uint64_t count) {
      return with(sum, [&](auto& c) {
        c.count = count;
        c.data = nullptr;
      });
    };
    refuse(of_count(most), "no data");
    refuse(of_count(most + 1), "beyond what memory can hold");
    Collective broadcast = sum;
    broadcast.op = Op::kBroadcast;
    broadcast.data = nullptr;
    for (const auto& [root, words] :
         {std::pair(-1, "root"), {0, "no data"}, {size - 1, "no data"}, {size, "root"}})
      refuse(with(broadcast, [root = root](auto& c) { c.root = root; }), words);
    Collective gather = sum;
    gather.op = Op::kAllGather;
    refuse(gather, "nowhere to gather to");
    // No elements need no place; bytes can be gathered.
    refuse(with(gather,
                [&](auto& c) {
                  c.count = 0;
                  c.dtype = DType::kByte;
                  c.device = &other_gpu_;
                }),
           "not the group's");
  }

  // ---- Options ----

  NcclOptions without_name() const {
    NcclOptions options;
    options.name.clear();
    return options;
  }
  void refuse(int rank, int size, const NcclOptions& options, const char* words) {
    const auto made = NcclProcessGroup::connect(api_, gpu_, store_, rank, size, options);
    expect("a group", made ? Status() : made.error(), words);
  }

  void try_places() {
    for (const auto& [rank, size, words] : std::vector<std::tuple<int, int, const char*>>{
             {0, 0, "rank"}, {-1, 1, "rank"}, {1, 1, "rank"}, {0, 1, "name"}, {1, 2, "name"}})
      refuse(rank, size, without_name(), words);
  }

  void try_times() {
    for (platform::Duration NcclOptions::*time :
         {&NcclOptions::timeout, &NcclOptions::connect_timeout, &NcclOptions::poll,
          &NcclOptions::notice}) {
      for (const auto& [span, words] : {std::pair(platform::Duration(0), "times"),
                                        {kTick, "name"},
                                        {kYear, "name"},
                                        {kYear + kTick, "times"}}) {
        NcclOptions options = without_name();
        options.*time = span;
        refuse(0, 1, options, words);
      }
    }
    NcclOptions options = without_name();
    options.grace = std::chrono::seconds(10);
    options.end_timeout = std::chrono::seconds(20);
    refuse(0, 1, options, "name");
    options.end_timeout += kTick;
    refuse(0, 1, options, "50 s");
  }

  // ---- What NCCL makes ----

  // NCCL returns this, and makes no communicator.
  template <NcclResult kResult>
  static NcclResult init_with(NcclComm*, int, NcclUniqueId, int, NcclConfig*) {
    return kResult;
  }

  // An error says what NCCL has returned. Whether another rank may be the cause depends on it.
  void try_results() {
    struct Returned {
      decltype(NcclApi::comm_init_rank_config) function;
      Code code;
      const char* words;
      bool is_definite;
    };
    constexpr auto kUnknown = static_cast<NcclResult>(99);
    for (const auto& [function, code, words, is_definite] : std::vector<Returned>{
             {init_with<NcclResult::kSuccess>, Code::kTransport, "gave no communicator", false},
             {init_with<NcclResult::kInProgress>, Code::kTransport, "(ncclInProgress)", true},
             {init_with<NcclResult::kRemoteError>, Code::kPeerLost, "(ncclRemoteError)", false},
             {init_with<NcclResult::kTimeout>, Code::kTimeout, "(ncclTimeout)", false},
             {init_with<kUnknown>, Code::kTransport, "(a result that is not known here)", true}}) {
      NcclApi api = api_;
      api.comm_init_rank_config = function;
      api.get_last_error = [](NcclComm) -> const char* { return nullptr; };
      NcclOptions options;
      options.name = words;
      const auto made = NcclProcessGroup::connect(api, gpu_, store_, 0, 1, options);
      const Status status = made ? Status() : made.error();
      const bool is_right = status.code() == code && status.failure().definite == is_definite &&
                            status.failure().detail.find(words) != std::string::npos &&
                            status.failure().detail.find("last error") == std::string::npos;
      if (!is_right && wrong_.empty())
        wrong_ = std::string("a group had to fail with a text that has '") + words +
                 "': " + status.to_string();
    }
  }

  // Two groups cannot have one name.
  void try_name_again() {
    NcclOptions options;
    options.name = "twice";
    const auto made = NcclProcessGroup::connect(api_, gpu_, store_, 0, 1, options);
    if (!made && wrong_.empty()) wrong_ = "a group cannot be made: " + made.error().to_string();
    const auto again = NcclProcessGroup::connect(api_, gpu_, store_, 0, 1, options);
    expect("a group", again ? Status() : again.error(), "give each group its own");
  }

  template <int kAnswer>
  static NcclResult answer(NcclComm, int* value) {
    *value = kAnswer;
    return NcclResult::kSuccess;
  }

  // A communicator that is not the one that was asked for is no group.
  void try_other_communicators() {
    const auto refuse_made = [&](const NcclApi& api, Code code, const char* words) {
      NcclOptions options;
      options.name = words;
      const auto made = NcclProcessGroup::connect(api, gpu_, store_, 0, 1, options);
      const Status status = made ? Status() : made.error();
      const bool is_right = status.code() == code &&
                            (status.failure().definite || code != Code::kInvalidArgument) &&
                            status.failure().detail.find(words) != std::string::npos;
      if (!is_right && wrong_.empty())
        wrong_ = std::string("a communicator had to be refused with a text that has '") + words +
                 "': " + status.to_string();
    };
    using Question = NcclResult (*)(NcclComm, int*);
    const auto refuse_answer = [&](Question NcclApi::*question, Question given, Code code,
                                   const char* words) {
      NcclApi api = api_;
      api.*question = given;
      refuse_made(api, code, words);
    };
    refuse_answer(&NcclApi::comm_cu_device, answer<kOtherGpu>, Code::kInvalidArgument,
                  "on CUDA device 77, and the group's is");
    refuse_answer(&NcclApi::comm_count, answer<2>, Code::kTransport,
                  "made rank 0 of 2 of rank 0 of 1");
    refuse_answer(&NcclApi::comm_user_rank, answer<1>, Code::kTransport,
                  "made rank 1 of 1 of rank 0 of 1");
    // What NCCL does not tell is not taken for right.
    const auto fails = [](NcclComm, int*) { return NcclResult::kInternalError; };
    refuse_answer(&NcclApi::comm_cu_device, fails, Code::kTransport, "ncclCommCuDevice");
    refuse_answer(&NcclApi::comm_count, fails, Code::kTransport, "ncclCommCount");
    refuse_answer(&NcclApi::comm_user_rank, fails, Code::kTransport, "ncclCommUserRank");
    // Where NCCL's text says what is to be done, the error says it, too.
    NcclApi api = api_;
    api.comm_init_rank_config = [](NcclComm*, int, NcclUniqueId, int, NcclConfig*) {
      return NcclResult::kInvalidUsage;
    };
    api.get_last_error = [](NcclComm) { return "Duplicate GPU detected : rank 0 and rank 1"; };
    refuse_made(api, Code::kInvalidArgument, "two ranks are on one GPU");
    api.get_last_error = [](NcclComm) { return "CUDA driver version is insufficient for it"; };
    refuse_made(api, Code::kInvalidArgument, "there is no NVIDIA driver, or it is older");
  }

  // ---- Smaller groups ----

  void refuse(std::vector<int> excluded, const char* words) {
    const auto made = NcclProcessGroup::shrink(group_, std::move(excluded), store_, without_name());
    expect("a smaller group", made ? Status() : made.error(), words);
  }

  void try_smaller_groups() {
    const int size = group_.size();
    const int own = group_.rank();
    refuse({own}, "another rank");
    refuse({-1}, "another rank");
    refuse({size}, "another rank");
    refuse(std::vector<int>{}, "name");
    for (const int other : {0, size - 1})
      if (other != own) refuse({other, other}, "name");
  }

  const NcclApi& api_;
  Device& gpu_;
  NcclProcessGroup& group_;
  const std::shared_ptr<Store> store_;
  simulated::SimDevice other_gpu_;  // Nothing runs on it.
  std::byte bytes_[sizeof(float)] = {};
  std::string wrong_;
};

}  // namespace

std::string check_nccl_calls(const NcclApi& api, Device& gpu, NcclProcessGroup& group) {
  return WrongCalls(api, gpu, group).run();
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
