#include "reducer/comm/nccl/nccl_api.h"

#include <dlfcn.h>

#include <climits>
#include <memory>
#include <utility>
#include <vector>

#include "reducer/base/check.h"
#include "reducer/base/loader_error.h"
#include "reducer/comm/nccl/nccl_functions.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

constexpr int kOldestVersion = 21400;
constexpr int kFirstUnknownVersion = 30000;

struct CloseLibrary {
  void operator()(void* library) const { ::dlclose(library); }
};
using Library = std::unique_ptr<void, CloseLibrary>;

Status refused(const std::string& what) { return Status(Code::kInvalidArgument, "NCCL: " + what); }

// Returns the file that a function really came from: the loader may have reused a library that was
// loaded before.
std::string file_of(void* function, const std::string& otherwise) {
  Dl_info info{};
  if (::dladdr(function, &info) == 0 || info.dli_fname == nullptr) return otherwise;
  return info.dli_fname;
}

// Calls visit(name, first version of NCCL that has it, its place in the table) for each function.
template <typename Table, typename Visitor>
void visit_required(Table& table, Visitor&& visit) {
  constexpr int kAlways = kOldestVersion;
  visit("ncclGetVersion", kAlways, table.get_version);
  visit("ncclGetUniqueId", kAlways, table.get_unique_id);
  visit("ncclCommInitRankConfig", kAlways, table.comm_init_rank_config);
  visit("ncclCommDestroy", kAlways, table.comm_destroy);
  visit("ncclCommAbort", kAlways, table.comm_abort);
  visit("ncclGetErrorString", kAlways, table.get_error_string);
  visit("ncclGetLastError", kAlways, table.get_last_error);
  visit("ncclCommGetAsyncError", kAlways, table.comm_get_async_error);
  visit("ncclCommCount", kAlways, table.comm_count);
  visit("ncclCommCuDevice", kAlways, table.comm_cu_device);
  visit("ncclCommUserRank", kAlways, table.comm_user_rank);
  visit("ncclRedOpCreatePreMulSum", kAlways, table.red_op_create_pre_mul_sum);
  visit("ncclRedOpDestroy", kAlways, table.red_op_destroy);
  visit("ncclBroadcast", kAlways, table.broadcast);
  visit("ncclAllReduce", kAlways, table.all_reduce);
  visit("ncclReduceScatter", kAlways, table.reduce_scatter);
  visit("ncclAllGather", kAlways, table.all_gather);
  visit("ncclSend", kAlways, table.send);
  visit("ncclRecv", kAlways, table.receive);
  visit("ncclGroupStart", kAlways, table.group_start);
  visit("ncclGroupEnd", kAlways, table.group_end);
}

template <typename Table, typename Visitor>
void visit_optional(Table& table, Visitor&& visit) {
  visit("ncclCommFinalize", 21403, table.comm_finalize);
  visit("ncclCommSplit", 21801, table.comm_split);
  visit("ncclMemAlloc", 21901, table.mem_alloc);
  visit("ncclMemFree", 21901, table.mem_free);
  visit("ncclCommRegister", 21901, table.comm_register);
  visit("ncclCommDeregister", 21901, table.comm_deregister);
  visit("ncclCommInitRankScalable", 22304, table.comm_init_rank_scalable);
  visit("ncclCommShrink", 22703, table.comm_shrink);
  visit("ncclCommRevoke", 22807, table.comm_revoke);
  visit("ncclCommGetUniqueId", 22902, table.comm_get_unique_id);
  visit("ncclCommGrow", 22902, table.comm_grow);
  visit("ncclCommSuspend", 22907, table.comm_suspend);
  visit("ncclCommResume", 22907, table.comm_resume);
}

template <typename Function>
void bind(void* library, const char* name, Function*& slot) {
  slot = reinterpret_cast<Function*>(::dlsym(library, name));
}

Result<Library> open_library(const std::string& name) {
  std::string reason = cut_off(name);
  if (reason.empty()) {
    Library library(::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL));
    if (library != nullptr) return library;
    reason = loader_error(name);
  }
  return failed(refused("cannot load '" + name + "' (" + reason +
                        "): give the path of a libnccl.so.2, or install NCCL where the loader "
                        "looks for libraries"));
}

Status check_version(const NcclApi& api) {
  const std::string what = "'" + api.library + "' is version " + nccl_version_text(api.version);
  if (api.version < kOldestVersion)
    return refused(what + ", which is too old: use 2.14 or a newer 2.x");
  if (api.version >= kFirstUnknownVersion)
    return refused(what + ", whose interface is not known here: use 2.14 or a newer 2.x");
  return Status();
}

// The end of the last field that the header of that version has, rounded up to whole words, as a
// compiler computes the size of a struct that holds pointers.
std::size_t config_size(int version) {
  const auto through = [](std::size_t last_int) {
    constexpr std::size_t kWord = alignof(NcclConfig);
    return (last_int + sizeof(int) + kWord - 1) / kWord * kWord;
  };
  // The newest version has every field.
  static_assert(through(offsetof(NcclConfig, nvlsHostMode)) == sizeof(NcclConfig));
  if (version >= 23203) return through(offsetof(NcclConfig, nvlsHostMode));
  if (version >= 23102) return through(offsetof(NcclConfig, hostCftMode));
  if (version >= 23007) return through(offsetof(NcclConfig, graphStreamOrdering));
  if (version >= 23003) return through(offsetof(NcclConfig, maxP2pPeers));
  if (version >= 22902) return through(offsetof(NcclConfig, numRmaCtx));
  if (version >= 22800) return through(offsetof(NcclConfig, nvlinkCentricSched));
  if (version >= 22700) return through(offsetof(NcclConfig, nvlsCTAs));
  if (version >= 22600) return through(offsetof(NcclConfig, trafficClass));
  if (version >= 21800) return through(offsetof(NcclConfig, splitShare));
  if (version >= 21700) return offsetof(NcclConfig, netName) + sizeof(const char*);
  return through(offsetof(NcclConfig, blocking));
}

}  // namespace

std::string nccl_version_text(int version) {
  // Up to 2.8 the minor version had two digits fewer.
  const int scale = version >= 10000 ? 10000 : 1000;
  return std::to_string(version / scale) + "." + std::to_string(version % scale / 100) + "." +
         std::to_string(version % 100);
}

Result<NcclApi> load_nccl(const std::string& name) {
  Result<Library> library = open_library(name);
  if (!library) return failed(std::move(library.error()));
  NcclApi api;
  api.library = name;
  bind(library->get(), "ncclGetVersion", api.get_version);
  if (api.get_version == nullptr)
    return failed(refused("'" + name + "' is a library, but not NCCL (it has no ncclGetVersion): " +
                          "give the path of a libnccl.so.2"));
  api.library = file_of(reinterpret_cast<void*>(api.get_version), name);
  if (const NcclResult result = api.get_version(&api.version); result != NcclResult::kSuccess)
    return failed(refused("'" + api.library +
                          "' does not report its version (ncclGetVersion gave " +
                          std::to_string(static_cast<int>(result)) + "): use another copy"));
  if (Status status = check_version(api); !status.ok()) return failed(std::move(status));

  std::string missing;
  visit_required(api, [&](const char* function, int, auto*& slot) {
    bind(library->get(), function, slot);
    if (slot == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(function);
  });
  if (!missing.empty())
    return failed(refused("'" + api.library + "' says that it is " +
                          nccl_version_text(api.version) + ", but lacks " + missing +
                          ": use NCCL as it was released"));
  visit_optional(
      api, [&](const char* function, int, auto*& slot) { bind(library->get(), function, slot); });
  // The library has threads from its first call on, which must not lose their code.
  static_cast<void>(library->release());
  return api;
}

Status NcclApi::lacking(std::string_view function) const {
  Status status = refused("there is no function '" + std::string(function) +
                          "' in the table: see nccl_api.h for those that are");
  const auto look = [&](const char* name, int since, auto* slot) {
    if (name != function) return;
    status = slot != nullptr
                 ? Status()
                 : refused("'" + library + "' (" + nccl_version_text(version) + ") lacks " + name +
                           ": use " + nccl_version_text(since) + " or newer");
  };
  visit_required(*this, look);
  visit_optional(*this, look);
  return status;
}

std::span<const NcclFunctionName> nccl_functions() {
  static const std::vector<NcclFunctionName> names = [] {
    std::vector<NcclFunctionName> found;
    const NcclApi api;
    visit_required(api, [&](const char* name, int since, auto*) {
      found.push_back({name, since, true});
    });
    visit_optional(api, [&](const char* name, int since, auto*) {
      found.push_back({name, since, false});
    });
    // Every pointer of the table has its visit.
    constexpr std::size_t kPointers = sizeof(NcclRequiredFunctions) + sizeof(NcclOptionalFunctions);
    LOCKSTEP_CHECK_EQ(found.size(), kPointers / sizeof(void (*)()));
    return found;
  }();
  return names;
}

NcclConfig make_nccl_config(int version) {
  NcclConfig config{};
  config.size = config_size(version);
  LOCKSTEP_CHECK_LE(config.size, sizeof config);  // NCCL reads so many bytes.
  config.magic = kNcclConfigMagic;
  config.version = static_cast<unsigned int>(version);
  int* const chosen_by_nccl[] = {&config.blocking,
                                 &config.cgaClusterSize,
                                 &config.minCTAs,
                                 &config.maxCTAs,
                                 &config.splitShare,
                                 &config.trafficClass,
                                 &config.collnetEnable,
                                 &config.CTAPolicy,
                                 &config.shrinkShare,
                                 &config.nvlsCTAs,
                                 &config.nChannelsPerNetPeer,
                                 &config.nvlinkCentricSched,
                                 &config.graphUsageMode,
                                 &config.numRmaCtx,
                                 &config.maxP2pPeers,
                                 &config.graphStreamOrdering,
                                 &config.launchOrderImplicit,
                                 &config.numRmaSig,
                                 &config.rmaEagerInit,
                                 &config.hostCftMode,
                                 &config.nvlsHostMode};
  for (int* field : chosen_by_nccl) *field = INT_MIN;
  return config;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
