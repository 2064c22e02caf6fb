// Runs one rank of a case of the nccl lane, in its own process. Compiled once per build of the
// reducer; a process runs one of them.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>

#include "faults/sim/nccl/nccl_profile.h"
#include "properties/lane/nccl_environment.h"
#include "properties/lane/nccl_gpu.h"
#include "properties/lane/nccl_log.h"
#include "properties/lane/nccl_played.h"
#include "properties/lane/nccl_setup.h"
#include "properties/lane/needs.h"
#include "properties/lane/process_ranks.h"
#include "properties/observe/graph_builder.h"
#include "properties/observe/training.h"
#include "properties/subject/subject_factory.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

using properties::NcclLog;
using properties::NcclSetup;

// The NCCL of this process, from its first case on. NCCL reads its variables once, and its log is
// one file; each case reads the new part of it. The file is in memory if the system can open such a
// file by name; a killed rank then leaves no file behind. Otherwise it is removed after NCCL has
// opened it, and a rank that is killed before that leaves it behind.
class LoadedNccl {
 public:
  LoadedNccl() = default;
  LoadedNccl(const LoadedNccl&) = delete;
  LoadedNccl& operator=(const LoadedNccl&) = delete;
  ~LoadedNccl() {  // for an NCCL that could not be loaded
    if (log_ >= 0) ::close(log_);
    remove_file();
  }
  Status load(std::uint32_t rank) {
    auto setup = properties::nccl_setup();
    if (!setup) return setup.error();
    setup_ = std::move(*setup);
    LOCKSTEP_RETURN_IF_ERROR(properties::load_plugin(setup_));
    std::string name;
    LOCKSTEP_RETURN_IF_ERROR(make_log(name));
    properties::set_variables(
        properties::nccl_variables(setup_, std::to_string(::getppid()), rank, name));
    if (properties::is_nccl_played())
      LOCKSTEP_RETURN_IF_ERROR(properties::load_played_nccl(setup_.library));
    auto api = load_nccl(setup_.library);
    if (!api) return api.error();
    api_ = std::move(*api);
    return properties::check_nccl_version(api_.version, api_.library);
  }
  const NcclSetup& setup() const { return setup_; }
  // See RankObservation.
  const std::string& lacking() const { return lacking_; }
  const NcclApi& api() const { return api_; }
  // Later log lines belong to the next case.
  void begin_case() {
    log();
    parsed_.begin_case();
  }
  // Returns the log of the case up to now.
  const NcclLog& log() {
    char text[4096];
    ssize_t got = 0;
    while ((got = ::pread(log_, text, sizeof text, read_)) > 0) {
      read_ += got;
      rest_.append(text, static_cast<std::size_t>(got));
    }
    if (read_ > 0) remove_file();
    const std::size_t end = rest_.rfind('\n') + 1;
    parsed_.add(std::string_view(rest_).substr(0, end));
    rest_.erase(0, end);
    return parsed_;
  }

 private:
  void remove_file() {
    if (!file_.empty()) ::unlink(std::exchange(file_, {}).c_str());
  }
  Status make_log(std::string& name) {
    log_ = ::memfd_create("nccl-log", MFD_CLOEXEC);
    name = fmt::format("/proc/self/fd/{}", log_);
    const int again = log_ < 0 ? -1 : ::open(name.c_str(), O_WRONLY | O_CLOEXEC);
    if (again >= 0) {
      ::close(again);
      return {};
    }
    if (log_ >= 0) ::close(log_);
    name = (std::filesystem::temp_directory_path() / "lockstep-nccl-XXXXXX").string();
    log_ = ::mkostemp(name.data(), O_CLOEXEC);
    if (log_ < 0) {
      lacking_ =
          properties::refused_by_system("no file for NCCL's log, " + name, errno).failure().detail;
      return Status(Code::kInternal, lacking_);
    }
    file_ = name;
    return {};
  }

  NcclSetup setup_;
  NcclApi api_;
  int log_ = -1;
  std::string file_;  // the log file, if it must be removed
  off_t read_ = 0;
  std::string rest_;
  NcclLog parsed_;
  std::string lacking_;
};

// This is never destroyed, because NCCL has threads of its own.
Result<LoadedNccl*> nccl_of(std::uint32_t rank, std::string& lacking) {
  static LoadedNccl* loaded = nullptr;
  if (loaded != nullptr) return loaded;
  auto fresh = std::make_unique<LoadedNccl>();
  Status status = fresh->load(rank);
  lacking = fresh->lacking();
  if (!status.ok()) return failed(std::move(status));
  loaded = fresh.release();
  return loaded;
}

// The plan must be in the environment when NCCL initializes the plug-in.
Result<std::optional<faults::net::NetPlan>> take_plan(const std::string& name) {
  properties::set_variables({{LOCKSTEP_NET_PLAN, name}});
  if (name.empty()) return std::optional<faults::net::NetPlan>();
  auto plan = faults::net::NetPlan::attach(name);
  if (!plan) return failed(plan.error());
  return std::optional<faults::net::NetPlan>(std::move(*plan));
}

// Allocates the pinned memory of a case before its first step (CudaDevice caches released memory by
// powers of two). In a backward an allocation may make the driver wait for everything that runs on
// the GPU, including a collective that waits for this rank.
Status make_pinned_spare(Device& gpu, const reference::Program& program) {
  constexpr int kSmall = 64;
  constexpr std::size_t kSmallBytes = 4096;
  std::vector<std::size_t> sizes(kSmall, kSmallBytes);
  for (const reference::Parameter& parameter : program.parameters) {
    const auto elements = static_cast<std::size_t>(shape_of(parameter).elements());
    const std::size_t bytes = elements * size_of(dtype_of(parameter.dtype));
    if (bytes > kSmallBytes) sizes.insert(sizes.end(), 2, bytes);
  }
  std::vector<PinnedMemory> blocks;
  for (const std::size_t bytes : sizes) {
    Result<PinnedMemory> pinned = gpu.allocate_pinned(bytes);
    if (!pinned) return pinned.error();
    blocks.push_back(std::move(*pinned));
  }
  return {};
}

Result<std::unique_ptr<Device>> open_any_gpu() {
  return properties::is_nccl_played() ? open_played_gpu() : open_gpu()();
}

bool is_good(const properties::RankObservation& observation) {
  return observation.finished && observation.failed_joins.empty() &&
         std::all_of(observation.steps.begin(), observation.steps.end(),
                     [](const auto& step) { return step.status.ok(); });
}

}  // namespace

void run_nccl_rank_here(const properties::Subject& subject, const properties::RankJob& job,
                        properties::RankObservation& observation, faults::Fired& fired) {
  const auto give_up = [&](const Status& why) { observation.unproven = why.failure().detail; };
  auto nccl = nccl_of(job.rank, observation.lacking);
  if (!nccl) return give_up(nccl.error());
  auto gpu = open_any_gpu();
  if (!gpu) return give_up(gpu.error());
  if (const Status status = make_pinned_spare(**gpu, job.c->program); !status.ok())
    return give_up(status);
  auto plan = take_plan(job.net_plan);
  if (!plan) return give_up(plan.error());
  (*nccl)->begin_case();
  {
    NcclEnvironment environment(
        RealEnvironment::setup_of(job),
        {gpu->get(), &(*nccl)->api(), plan->has_value() ? &**plan : nullptr});
    std::vector<std::unique_ptr<HostDevice>> devices;
    properties::ExpectedErrors errors(job.c->program, *job.expectation);
    train(job.c->program, errors, make_subject_factory(subject), environment, devices, observation);
    fired = environment.fired();
    observation.lacking = environment.lacking();
    observation.shrunk = environment.groups().shrunk();
    observation.shrunk_by_nccl = environment.groups().shrunk_by_nccl();
    const NcclLog& log = (*nccl)->log();
    const NcclSetup& used = (*nccl)->setup();
    const NcclLog::Made made{environment.has_groups(), environment.has_led(),
                             environment.has_led() && is_good(observation)};
    const Status proof = log.check(used.network(), used.uses_plugin, made);
    if (!proof.ok()) observation.unproven = proof.failure().detail;
  }
  const bool is_stuck = is_left(**gpu) || is_played_gpu_left(**gpu);
  const std::uint64_t allocated = (*gpu)->allocated_bytes();
  // A group whose abort hangs keeps what it has until its process ends.
  const bool is_excused = is_stuck && faults::nccl_profile((*nccl)->api().version).aborts_may_hang;
  observation.leaked_bytes = is_excused ? 0 : allocated;
  // Threads in NCCL, and leaked storages, still point to it.
  if (is_stuck || allocated > 0) (void)gpu->release();
}

// main() of a process that checks whether the lane can run (nccl_setup.h).
Status probe_nccl_here(std::string& found, bool& lacks_device) {
  auto setup = properties::nccl_setup();
  if (!setup) return setup.error();
  const bool names_library = std::getenv("LOCKSTEP_NCCL") != nullptr;
  const bool is_played = properties::is_nccl_played();
  const auto look_at_library = [&]() -> Status {
    if (is_played) LOCKSTEP_RETURN_IF_ERROR(properties::load_played_nccl(setup->library));
    auto api = load_nccl(setup->library);
    if (!api) return api.error();
    found = "NCCL " + nccl_version_text(api->version) + (is_played ? ", the GPU is played" : "");
    return properties::check_nccl_version(api->version, api->library);
  };
  // The user's choices are checked first; the defaults, once there is a GPU to use them with.
  if (names_library) LOCKSTEP_RETURN_IF_ERROR(look_at_library());
  auto gpu = open_any_gpu();
  lacks_device = !gpu && gpu.error().code() == Code::kInvalidArgument;
  if (!gpu) return gpu.error();
  if (!names_library) LOCKSTEP_RETURN_IF_ERROR(look_at_library());
  return properties::load_plugin(*setup);
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
