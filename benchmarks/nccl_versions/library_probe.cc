#include "benchmarks/nccl_versions/library_probe.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "benchmarks/nccl_versions/elf_file.h"
#include "benchmarks/nccl_versions/nccl_calls.h"
#include "benchmarks/nccl_versions/recorded_lookups.h"
#include "reducer/comm/nccl/nccl_api.h"

namespace lockstep::benchmarks {
namespace {

// What the library names these functions in .symtab: ncclNetInit(ncclComm*) and
// ncclNetPluginLoad(ncclComm*).
constexpr const char* kNetInit = "_Z11ncclNetInitP8ncclComm";
constexpr const char* kNetPluginLoad = "_Z17ncclNetPluginLoadP8ncclComm";

constexpr std::size_t kCommunicatorBytes = std::size_t{64} << 20;  // more than any NCCL's
constexpr double kLoadSeconds = 120;
constexpr std::size_t kLongestNetwork = 32;

using OfCommunicator = int (*)(void* communicator);

// "lockstep", from /folder/libnccl-net-lockstep.so
std::string plugin_name(const std::string& file) {
  const std::string name = std::filesystem::path(file).filename().string();
  std::smatch match;
  return std::regex_match(name, match, std::regex("libnccl-net-(.+)\\.so")) ? match[1].str() : name;
}

// Copies memory that may not be there.
class SafeReader {
 public:
  SafeReader() {
    if (::pipe(pipe_.data()) != 0) pipe_ = {-1, -1};
  }
  ~SafeReader() {
    ::close(pipe_[0]);
    ::close(pipe_[1]);
  }
  SafeReader(const SafeReader&) = delete;
  SafeReader& operator=(const SafeReader&) = delete;
  bool read(const void* from, void* to, std::size_t bytes) const {
    const ssize_t written = ::write(pipe_[1], from, bytes);  // EFAULT for what is not there
    if (written <= 0) return false;
    const ssize_t got = ::read(pipe_[0], to, static_cast<std::size_t>(written));
    return got == static_cast<ssize_t>(bytes);
  }

 private:
  std::array<int, 2> pipe_{};
};

bool is_name(const char* text) {
  const std::size_t length = ::strnlen(text, kLongestNetwork);
  return length > 0 && length < kLongestNetwork && std::all_of(text, text + length, [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
         });
}

// The name of the table of a network that the communicator points to: a table begins with the
// pointer to its name, and its second field is a function.
std::string network_of(const void* const* communicator) {
  const SafeReader memory;
  for (std::size_t i = 0; i < kCommunicatorBytes / sizeof(void*); ++i) {
    std::array<const void*, 2> table{};
    std::array<char, kLongestNetwork> name{};
    if (communicator[i] == nullptr) continue;
    if (!memory.read(communicator[i], table.data(), sizeof table)) continue;
    if (!memory.read(table[0], name.data(), sizeof name)) continue;
    Dl_info function{};
    if (::dladdr(table[1], &function) != 0 && is_name(name.data())) return name.data();
  }
  return "";
}

// What the child does: it reports as JSON.
std::string ask_for_plugin(const std::string& library, const ElfFile& file,
                           const std::string& plugin) {
  ::setenv("NCCL_NET_PLUGIN", plugin_name(plugin).c_str(), 1);
  nlohmann::json out;
  // NCCL finds a plug-in that is loaded by the name that the library has for itself.
  void* const loaded = ::dlopen(plugin.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr || handle == nullptr) return "";
  static_cast<void>(record_lookups(handle));  // a library without dlsym() looks up nothing
  auto* const unique_id =
      reinterpret_cast<int (*)(NcclUniqueId*)>(::dlsym(handle, "ncclGetUniqueId"));
  NcclUniqueId id{};
  if (unique_id != nullptr) out["result"] = unique_id(&id);
  link_map* map = nullptr;
  ::dlinfo(handle, RTLD_DI_LINKMAP, &map);
  void* const communicator = ::mmap(nullptr, kCommunicatorBytes, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  for (const char* const name : {kNetPluginLoad, kNetInit}) {
    const auto found = file.functions.find(name);
    if (found == file.functions.end()) continue;
    out["result"] = std::bit_cast<OfCommunicator>(map->l_addr + found->second)(communicator);
  }
  out["network"] = network_of(static_cast<const void* const*>(communicator));
  out["asked"] = recorded_lookups();
  return out.dump();
}

PluginProbe probe_plugin(const std::string& library, const ElfFile& file, const std::string& plugin,
                         double limit) {
  PluginProbe probe;
  probe.is_possible = file.functions.contains(kNetInit);
  if (!probe.is_possible) return probe;
  probe.child = run_in_child(limit, [&] { return ask_for_plugin(library, file, plugin); });
  const auto json = nlohmann::json::parse(probe.child.output, nullptr, false);
  if (!json.is_object()) return probe;
  probe.result = json.value("result", 0);
  probe.network = json.value("network", "");
  probe.asked = json.value("asked", probe.asked);
  return probe;
}

// Names that match; each once.
std::vector<std::string> texts_like(const ElfFile& file, const std::string& pattern) {
  const std::regex like(pattern);
  std::set<std::string> names;
  for (const std::string& text : file.texts)
    if (std::regex_match(text, like)) names.insert(text);
  return {names.begin(), names.end()};
}

// The names that a library can read from its environment. A linker lets a text share the end of a
// longer one, and a compiler may have put bytes that are no text before it.
std::vector<std::string> environment_names(const ElfFile& file) {
  std::set<std::string> names;
  for (const std::string& text : file.texts) {
    const std::size_t last =
        text.find_last_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");  // before the name
    const std::size_t begin = text.find("NCCL_", last == std::string::npos ? 0 : last + 1);
    if (begin != std::string::npos && begin + 5 < text.size()) names.insert(text.substr(begin));
  }
  return {names.begin(), names.end()};
}

// A library without a function that is required is refused, and none of it is called.
CallProbe probe_call(const NcclApi& api, const NcclCall& call, double limit) {
  CallProbe probe;
  probe.function = call.name;
  probe.is_there = api.lacking(call.function).ok();
  if (!probe.is_there) return probe;
  probe.child = run_in_child(limit, [&] {
    const int result = call.call(api);
    const char* const error = api.get_last_error(nullptr);
    return fmt::format("{}\n{}", result, error == nullptr ? "" : error);
  });
  if (!probe.child.is_fine()) return probe;
  const std::size_t line = probe.child.output.find('\n');
  probe.result = std::stoi(probe.child.output.substr(0, line));
  probe.error = probe.child.output.substr(line + 1);
  return probe;
}

nlohmann::json to_json(const CallProbe& probe) {
  return {{"function", probe.function},
          {"is_there", probe.is_there},
          {"end", static_cast<int>(probe.child.end)},
          {"code", probe.child.code},
          {"milliseconds", probe.child.milliseconds},
          {"limit_seconds", probe.child.limit_seconds},
          {"result", probe.result},
          {"error", probe.error}};
}

CallProbe call_from_json(const nlohmann::json& json) {
  CallProbe probe;
  probe.function = json.at("function");
  probe.is_there = json.at("is_there");
  probe.child.end = static_cast<ChildResult::End>(json.at("end").get<int>());
  probe.child.code = json.at("code");
  probe.child.milliseconds = json.at("milliseconds");
  probe.child.limit_seconds = json.at("limit_seconds");
  probe.result = json.at("result");
  probe.error = json.at("error");
  return probe;
}

// The library is loaded once; each call is made in a child of that process.
std::string call_everything(const std::string& library, double limit) {
  nlohmann::json out;
  const Result<NcclApi> api = load_nccl(library);
  if (!api) {
    out["refusal"] = api.error().failure().detail;
    return out.dump();
  }
  out["version"] = api->version;
  for (const NcclCall& call : nccl_calls())
    out["calls"].push_back(to_json(probe_call(*api, call, limit)));
  return out.dump();
}

}  // namespace

Result<LibraryProbe> probe_library(const std::string& library, const ProbeOptions& options) {
  Result<ElfFile> file = read_elf_file(library);
  if (!file) return failed(std::move(file.error()));
  LibraryProbe probe;
  for (const std::string& name : file->exported_functions)
    if (name.starts_with("nccl")) probe.exports.push_back(name);
  probe.environment = environment_names(*file);
  probe.plugin_tables = texts_like(*file, "nccl[A-Z][A-Za-z]*Plugin_v[0-9]+|ncclProfiler_v[0-9]+");
  const double whole =
      kLoadSeconds + options.limit_seconds * static_cast<double>(nccl_calls().size());
  const ChildResult child =
      run_in_child(whole, [&] { return call_everything(library, options.limit_seconds); });
  const auto json = nlohmann::json::parse(child.output, nullptr, false);
  if (!child.is_fine() || !json.is_object())
    return failed(Status(Code::kInvalidArgument,
                         fmt::format("'{}' {} while it was loaded", library, child.describe())));
  probe.refusal = json.value("refusal", "");
  probe.version = json.value("version", 0);
  for (const nlohmann::json& call : json.value("calls", nlohmann::json::array()))
    probe.calls.push_back(call_from_json(call));
  probe.empty_plugin = probe_plugin(library, *file, options.empty_plugin, options.limit_seconds);
  probe.own_plugin = probe_plugin(library, *file, options.own_plugin, options.limit_seconds);
  return probe;
}

}  // namespace lockstep::benchmarks
