// For NcclConformance: ranks as processes on one device, each with another NCCL_HOSTID, as NCCL
// wants it of ranks that share a GPU. This process forks them, and must never have used the device
// itself. World gives a rank what it runs on, in its own process:
//
//   struct World {
//     static std::string library();  // for load_nccl()
//     static Result<std::unique_ptr<Device>> open();  // kInvalidArgument: there is none, skip
//   };
//
// Ranks that have not ended after kLimit are killed, which is a failure.
#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "reducer/base/check.h"
#include "reducer/comm/nccl/test_nccl_conformance.h"
#include "reducer/device/test_no_gpu.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// A store of the processes that share `entries`.
struct SharedEntries {
  static constexpr std::size_t kMax = 64;
  static constexpr std::size_t kBytes = 4096;
  struct Text {
    std::size_t size = 0;
    char bytes[kBytes];
    void set(std::string_view text) {
      LOCKSTEP_CHECK_LE(text.size(), kBytes);
      size = text.copy(bytes, kBytes);
    }
    std::string_view get() const { return {bytes, size}; }
  };
  std::atomic_flag is_locked;
  std::size_t count = 0;
  Text keys[kMax];
  Text values[kMax];
};

class SharedStore final : public Store {
 public:
  explicit SharedStore(SharedEntries& entries) : entries_(entries) {}
  Result<bool> set(std::string_view key, std::string_view value) override {
    const Lock lock(entries_);
    if (find(key) < entries_.count) return false;
    LOCKSTEP_CHECK_LT(entries_.count, SharedEntries::kMax);
    entries_.keys[entries_.count].set(key);
    entries_.values[entries_.count++].set(value);
    return true;
  }
  Result<std::string> get(std::string_view key, platform::Deadline deadline) override {
    for (;; std::this_thread::sleep_for(std::chrono::microseconds(200))) {
      const Lock lock(entries_);
      const std::size_t at = find(key);
      if (at < entries_.count) return std::string(entries_.values[at].get());
      if (deadline.passed()) return failed(Status(Code::kTimeout, std::string(key)));
    }
  }
  Result<bool> contains(std::string_view key) override {
    const Lock lock(entries_);
    return find(key) < entries_.count;
  }

 private:
  struct Lock {
    explicit Lock(SharedEntries& of) : entries(of) {
      while (entries.is_locked.test_and_set()) std::this_thread::yield();
    }
    ~Lock() { entries.is_locked.clear(); }
    SharedEntries& entries;
  };
  std::size_t find(std::string_view key) const {
    std::size_t at = 0;
    while (at < entries_.count && entries_.keys[at].get() != key) ++at;
    return at;
  }
  SharedEntries& entries_;
};

class NcclProcess final : public NcclUnderTest {
 public:
  static constexpr int kMaxIds = 64;
  // In memory that all ranks share.
  struct Shared {
    std::atomic<int> came{0};
    std::atomic<int> ids_made{0};
    NcclUniqueId ids[kMaxIds]{};
    char no_device[512]{};  // why, as rank 0 found it
    SharedEntries entries;
  };
  NcclProcess(Shared& shared, const NcclApi& api, Device& device, int rank, int ranks)
      : shared_(shared), api_(api), device_(device), rank_(rank), ranks_(ranks) {}

  const NcclApi& api() override { return api_; }
  int rank() override { return rank_; }
  int ranks() override { return ranks_; }
  Device& device() override { return device_; }
  NcclUniqueId shared_id() override {
    const int which = next_id_++;
    LOCKSTEP_CHECK_LT(which, kMaxIds);
    if (rank_ == 0) {
      EXPECT_EQ(api_.get_unique_id(&shared_.ids[which]), NcclResult::kSuccess);
      ++shared_.ids_made;
    }
    while (shared_.ids_made <= which) pause();
    return shared_.ids[which];
  }
  void meet() override {
    const int wanted = ++meetings_ * ranks_;
    ++shared_.came;
    while (shared_.came < wanted) pause();
  }
  void pause() override { std::this_thread::sleep_for(std::chrono::microseconds(200)); }
  void end_here() override {
    std::fflush(nullptr);
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  std::shared_ptr<Store> store() override { return store_; }
  platform::Duration long_time() override { return std::chrono::seconds(60); }
  platform::Duration short_time() override { return std::chrono::seconds(1); }

 private:
  Shared& shared_;
  const NcclApi& api_;
  Device& device_;
  const int rank_;
  const int ranks_;
  int next_id_ = 0;
  int meetings_ = 0;
  const std::shared_ptr<Store> store_ = std::make_shared<SharedStore>(shared_.entries);
};

template <class World>
struct NcclProcesses {
  static constexpr bool kIsRealTime = true;
  static constexpr std::chrono::seconds kLimit{120};
  static constexpr std::chrono::seconds kAfterFailure{5};  // for those whose peer has failed
  enum End : int { kGood = 0, kFailed = 1, kSkipped = 76, kNoDevice = 77, kKilled = 255 };

  static void run(int ranks, const std::function<void(NcclUnderTest&)>& body) {
    void* const memory = ::mmap(nullptr, sizeof(NcclProcess::Shared), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    auto* const shared = new (memory) NcclProcess::Shared;
    std::fflush(nullptr);
    std::vector<pid_t> pids;
    for (int rank = 0; rank < ranks; ++rank) {
      const pid_t pid = ::fork();
      if (pid < 0) {
        ADD_FAILURE() << "fork: " << std::strerror(errno);
        for (const pid_t begun : pids) ::kill(begun, SIGKILL);
        break;
      }
      if (pid == 0) be_rank(*shared, rank, ranks, body);
      pids.push_back(pid);
    }
    const std::vector<int> ends = wait_for(pids);
    const std::string no_device = shared->no_device;
    ::munmap(memory, sizeof(NcclProcess::Shared));
    const auto all_end_with = [&](int end) {
      return std::all_of(ends.begin(), ends.end(), [end](int each) { return each == end; });
    };
    if (all_end_with(kNoDevice)) GTEST_SKIP() << no_gpu(Status(Code::kInvalidArgument, no_device));
    if (all_end_with(kSkipped)) GTEST_SKIP() << "the ranks say why";
    for (std::size_t rank = 0; rank < ends.size(); ++rank)
      EXPECT_EQ(ends[rank], kGood)
          << "rank " << rank
          << (ends[rank] == kKilled ? " was killed, or did not end" : " says above what is wrong");
  }

 private:
  [[noreturn]] static void be_rank(NcclProcess::Shared& shared, int rank, int ranks,
                                   const std::function<void(NcclUnderTest&)>& body) {
    const int end = body_of(shared, rank, ranks, body);
    std::fflush(nullptr);
    ::_exit(end);
  }

  static int body_of(NcclProcess::Shared& shared, int rank, int ranks,
                     const std::function<void(NcclUnderTest&)>& body) {
    set_environment(rank);
    Result<std::unique_ptr<Device>> device = World::open();
    if (!device && device.error().code() == Code::kInvalidArgument) {
      if (rank == 0)
        device.error().failure().detail.copy(shared.no_device, sizeof shared.no_device - 1);
      return kNoDevice;
    }
    EXPECT_TRUE(device.has_value()) << device.error().to_string();
    const Result<NcclApi> api = load_nccl(World::library());
    EXPECT_TRUE(api.has_value()) << api.error().to_string();
    if (!device || !api) return kFailed;
    NcclProcess process(shared, *api, **device, rank, ranks);
    body(process);
    if (::testing::Test::HasFailure()) return kFailed;
    return ::testing::Test::IsSkipped() ? kSkipped : kGood;
  }

  static void set_environment(int rank) {
    const auto set = [](const char* name, const std::string& value) {
      ::setenv(name, value.c_str(), 0);  // what the user says comes first
    };
    set("NCCL_HOSTID", "conformance-" + std::to_string(::getppid()) + "-" + std::to_string(rank));
    set("NCCL_SOCKET_IFNAME", "lo");
    set("NCCL_IB_DISABLE", "1");
    set("NCCL_CUMEM_HOST_ENABLE", "0");
    set("NCCL_MNNVL_ENABLE", "0");
    set("NCCL_NVLS_ENABLE", "0");
    set("NCCL_RAS_ENABLE", "0");
    // Rings are connected with the communicator: within a collective, that would need the peer.
    set("NCCL_RUNTIME_CONNECT", "0");
    set("NCCL_MIN_NCHANNELS", "1");
    set("NCCL_MAX_NCHANNELS", "1");
    // The plug-in stays for a second communicator (nccl#1978).
    set("NCCL_NET_PLUGIN_REF_COUNT", "1");
    set("NCCL_ALGO", "Ring");
    set("NCCL_PROTO", "Simple");
    set("CUDA_MODULE_LOADING", "EAGER");
    set("LOCKSTEP_RANK", std::to_string(rank));
  }

  static std::vector<int> wait_for(const std::vector<pid_t>& pids) {
    std::vector<int> ends(pids.size(), -1);
    auto limit = std::chrono::steady_clock::now() + kLimit;
    for (std::size_t left = pids.size(); left > 0;) {
      for (std::size_t i = 0; i < pids.size(); ++i) {
        int status = 0;
        if (ends[i] >= 0) continue;
        const pid_t ended = ::waitpid(pids[i], &status, WNOHANG);
        if (ended == 0) continue;
        ends[i] = ended == pids[i] && WIFEXITED(status) ? WEXITSTATUS(status) : kKilled;
        --left;
        if (ends[i] != kGood)
          limit = std::min(limit, std::chrono::steady_clock::now() + kAfterFailure);
      }
      if (std::chrono::steady_clock::now() > limit)
        for (std::size_t i = 0; i < pids.size(); ++i)
          if (ends[i] < 0) ::kill(pids[i], SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return ends;
  }
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
