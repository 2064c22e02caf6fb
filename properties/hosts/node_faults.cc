#include "properties/hosts/node_faults.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <optional>
#include <set>

#include "properties/process/system_error.h"

namespace lockstep::properties::hosts {
namespace {

namespace fs = std::filesystem;
using faults::Fault;
using faults::Kind;

constexpr const char* kLibrary = "liblockstep-node-shim.so";
constexpr const char* kPreload = "LD_PRELOAD";

// Where a build, and an installation, have the library; empty if it is in neither place.
std::string find_library() {
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& place : {folder / "faults" / "node", folder / ".." / "lib", folder})
    if (fs::exists(place / kLibrary, error)) return fs::canonical(place / kLibrary, error).string();
  return {};
}

// How much address space a process has.
std::optional<rlim_t> address_space_of(pid_t process) {
  std::ifstream in(fmt::format("/proc/{}/statm", process));
  rlim_t pages = 0;
  if (!(in >> pages)) return std::nullopt;
  return pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
}

// The lowest number that no descriptor of the process has: with that as its limit it gets none.
std::optional<rlim_t> descriptors_of(pid_t process) {
  std::set<rlim_t> used;
  std::error_code error;
  for (const auto& each : fs::directory_iterator(fmt::format("/proc/{}/fd", process), error))
    used.insert(std::strtoul(each.path().filename().c_str(), nullptr, 10));
  if (error) return std::nullopt;
  rlim_t lowest = 0;
  while (used.contains(lowest)) ++lowest;
  return lowest;
}

auto resource_of(Kind kind) { return kind == Kind::kNodeMemory ? RLIMIT_AS : RLIMIT_NOFILE; }

}  // namespace

NodeFaults::~NodeFaults() {
  (void)end_all();
  if (switches_ != nullptr) ::munmap(switches_, sizeof *switches_);
  if (fd_ >= 0) ::close(fd_);
}

Status NodeFaults::open_switches() {
  fd_ = ::memfd_create("lockstep-node", MFD_CLOEXEC);
  if (fd_ < 0 || ::ftruncate(fd_, sizeof(faults::NodeSwitches)) != 0)
    return refused_by_system("no memory can be shared with a rank", errno);
  void* const memory =
      ::mmap(nullptr, sizeof(faults::NodeSwitches), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (memory == MAP_FAILED) return refused_by_system("no memory can be shared with a rank", errno);
  switches_ = new (memory) faults::NodeSwitches();
  return {};
}

void NodeFaults::prepare() {
  const std::string library = find_library();
  if (library.empty()) lacking_ = fmt::format("{} is not beside the program", kLibrary);
  if (lacking_.empty() && switches_ == nullptr)
    if (const Status status = open_switches(); !status.ok()) lacking_ = status.failure().detail;
  if (!lacking_.empty()) return;
  ::setenv(faults::kNodeSwitchesVariable, fmt::format("/proc/{}/fd/{}", ::getpid(), fd_).c_str(),
           1);
  ::setenv(kPreload, library.c_str(), 1);
}

void NodeFaults::end_preparation() {
  ::unsetenv(faults::kNodeSwitchesVariable);
  ::unsetenv(kPreload);
}

std::uint64_t NodeFaults::count(Kind kind) const {
  if (kind == Kind::kNodeClock) return switches_->clock_reads;
  return kind == Kind::kNodeMemory ? switches_->refused_memory.load()
                                   : switches_->refused_descriptors.load();
}

Status NodeFaults::start(Active& active) {
  if (switches_ == nullptr) return {Code::kInternal, lacking_};
  const Fault& fault = active.fault;
  active.counted = count(fault.kind);
  if (fault.kind == Kind::kNodeClock) {
    const std::int64_t by = std::int64_t{fault.at / 2} * 1'000'000;
    switches_->clock_shift_ns.fetch_add(fault.at % 2 == 0 ? by : -by);
    return {};
  }
  const auto resource = resource_of(fault.kind);
  const bool is_memory = fault.kind == Kind::kNodeMemory;
  const auto has = is_memory ? address_space_of(active.process) : descriptors_of(active.process);
  if (!has || ::prlimit(active.process, resource, nullptr, &active.before) != 0)
    return refused_by_system("the limits of the rank's process cannot be read", errno);
  rlimit limit = active.before;
  limit.rlim_cur = std::min(limit.rlim_cur, *has + (is_memory ? fault.at : 0));
  if (::prlimit(active.process, resource, &limit, nullptr) != 0)
    return refused_by_system("the rank's process cannot be limited", errno);
  return {};
}

void NodeFaults::begin(const Fault& fault, pid_t process) {
  Active active{fault, process, {}, 0, TimedFaults<Active>::end_of(fault)};
  const Status status = start(active);
  faults_.add(active, status);
}

FaultReport NodeFaults::end(const Active& active) {
  const Fault& fault = active.fault;
  const std::uint64_t acted = count(fault.kind) - active.counted;
  const char* const why = fault.kind == Kind::kNodeClock    ? "nobody read the wall clock"
                          : fault.kind == Kind::kNodeMemory ? "the process asked for no more memory"
                                                            : "the process asked for no descriptor";
  if (fault.kind == Kind::kNodeClock) {
    const std::int64_t by = std::int64_t{fault.at / 2} * 1'000'000;
    switches_->clock_shift_ns.fetch_sub(fault.at % 2 == 0 ? by : -by);
  } else {
    (void)::prlimit(active.process, resource_of(fault.kind), &active.before, nullptr);
  }
  return {fault.kind, acted, acted != 0 ? "" : why};
}

Clock::time_point NodeFaults::end_those_due() {
  return faults_.end_those_due([this](const Active& each) { return end(each); });
}

std::vector<FaultReport> NodeFaults::end_all() {
  return faults_.end_all([this](const Active& each) { return end(each); });
}

}  // namespace lockstep::properties::hosts
