#include "properties/subject/loader.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <system_error>

#include "properties/subject/declared_sums.h"

namespace lockstep::properties {
namespace {

using enum Capability;

constexpr std::uint64_t kBits[] = {
    LOCKSTEP_CAN_DYNAMIC,       LOCKSTEP_CAN_NO_SYNC,      LOCKSTEP_CAN_NO_GRAD,
    LOCKSTEP_CAN_CHECKPOINT,    LOCKSTEP_CAN_FORWARDS,     LOCKSTEP_CAN_BACKWARDS,
    LOCKSTEP_CAN_DISCARD,       LOCKSTEP_CAN_KEEP_OUTPUTS, LOCKSTEP_CAN_SHARED,
    LOCKSTEP_CAN_FROZEN,        LOCKSTEP_CAN_FLOAT64,      LOCKSTEP_CAN_FLOAT16,
    LOCKSTEP_CAN_BFLOAT16,      LOCKSTEP_CAN_STRIDES,      LOCKSTEP_CAN_ZERO_SIZE,
    LOCKSTEP_CAN_TWO_DEVICES,   LOCKSTEP_CAN_BCUBE,        LOCKSTEP_CAN_SPECIAL,
    LOCKSTEP_CAN_ERRORS,        LOCKSTEP_CAN_RECOVER,      LOCKSTEP_CAN_ABSENT,
    LOCKSTEP_CAN_REPEATED_HOOKS};
constexpr Capability kMeanings[] = {
    kDynamic,  kNoSync,      kNoGrad,   kCheckpoint,   kSeveralForwards, kSeveralBackwards,
    kDiscard,  kKeepOutputs, kShared,   kFrozen,       kFloat64,         kFloat16,
    kBFloat16, kStrides,     kZeroSize, kTwoDevices,   kBcube,           kSpecial,
    kErrors,   kRecovery,    kAbsent,   kRepeatedHooks};
static_assert(std::ranges::equal(kBits, kMeanings, {}, {},
                                 [](Capability each) { return Capabilities::of({each}).bits(); }));
static_assert(kCapabilities == 61);

tl::unexpected<Status> refused(std::string what) {
  std::replace(what.begin(), what.end(), '\n', ' ');  // one line, whatever the linker says
  return failed(Status(Code::kInvalidArgument, std::move(what)));
}

// Lists the missing functions by name.
std::string holes(const lockstep_subject& table, Capabilities capabilities) {
  std::string found;
  const auto need = [&found](bool is_there, const char* name) {
    if (!is_there) found += (found.empty() ? "" : ", ") + std::string(name);
  };
  need(table.create != nullptr, "create");
  need(table.destroy != nullptr, "destroy");
  need(table.forward_begin != nullptr, "forward_begin");
  need(table.backward_begin != nullptr, "backward_begin");
  need(table.gradient_ready != nullptr, "gradient_ready");
  need(table.backward_end != nullptr, "backward_end");
  need(table.backward_failed != nullptr, "backward_failed");
  if (capabilities.has(Capability::kKeepOutputs))
    need(table.check_complete != nullptr, "check_complete (for LOCKSTEP_CAN_KEEP_OUTPUTS)");
  if (!capabilities.has(Capability::kRecovery)) return found;
  need(table.abort != nullptr, "abort (for LOCKSTEP_CAN_RECOVER)");
  need(table.reset != nullptr, "reset (for LOCKSTEP_CAN_RECOVER)");
  need(table.poisoned != nullptr, "poisoned (for LOCKSTEP_CAN_RECOVER)");
  return found;
}

}  // namespace

Result<LoadedSubject> check_subject(const lockstep_subject* table, const std::string& whose) {
  constexpr std::uint32_t kAbi = LOCKSTEP_ABI;
  if (table == nullptr)
    return refused(
        fmt::format("the subject '{}' does not serve interface version {}: build it with the "
                    "lockstep_subject.h of this Lockstep",
                    whose, kAbi));
  if (table->abi != kAbi)
    return refused(
        fmt::format("the subject '{}' speaks interface version {}, this Lockstep version {}: build "
                    "it with the lockstep_subject.h of this Lockstep",
                    whose, table->abi, kAbi));
  constexpr std::uint32_t kLeastSize = offsetof(lockstep_subject, scale);
  if (table->size < kLeastSize)
    return refused(
        fmt::format("the table of the subject '{}' says that it has {} bytes, and interface "
                    "version {} has {} or more: set its size to sizeof(lockstep_subject)",
                    whose, table->size, kAbi, kLeastSize));
  if (table->name == nullptr || table->name[0] == '\0')
    return refused(fmt::format("the subject '{}' has no name: set the name in its table", whose));
  const Capabilities capabilities =
      Capabilities::from_bits(table->capabilities & hosted_capabilities().bits());
  if (capabilities.bits() != table->capabilities)
    return refused(
        fmt::format("the subject '{}' claims capabilities {:#x} that interface version {} does not "
                    "know: use the LOCKSTEP_CAN_ constants",
                    whose, table->capabilities & ~capabilities.bits(), kAbi));
  if (const std::string missing = holes(*table, capabilities); !missing.empty())
    return refused(
        fmt::format("the table of the subject '{}' lacks functions: {}", whose, missing));
  std::string scale;
  if (table->size >= kLeastSize + sizeof table->scale && table->scale != nullptr)
    scale = table->scale;
  if (const auto sums = declared_sums({}, scale); !sums)
    return refused(fmt::format("the subject '{}': {}", whose, sums.error().failure().detail));
  // The host implements these: the interface is the same with them.
  const Capabilities with_host =
      capabilities.with(kConstants).with(kRounding).with(kFaults).with(kUndefined);
  const Capabilities between =
      capabilities.has(Capability::kNoGrad) ? with_host.with(Capability::kBetween) : with_host;
  return LoadedSubject{
      table,
      capabilities.has(Capability::kKeepOutputs) ? between.with(Capability::kHoldOutputs) : between,
      scale};
}

Result<LoadedSubject> load_subject(const std::string& path, const std::function<void()>& opened) {
  std::error_code error;
  const std::filesystem::path file = std::filesystem::absolute(path, error);
  if (path.empty() || error || !std::filesystem::exists(file, error))
    return refused(fmt::format(
        "there is no file '{}': give reducer, seeded:ID, torch, python:FILE.py:FUNCTION, or the "
        "path of a shared library that exports {}, such as ./libmyreducer.so",
        path, LOCKSTEP_ENTRY));
  if (!std::filesystem::is_regular_file(file, error))
    return refused(
        fmt::format("'{}' is not a file: give the path of a shared library that exports {}", path,
                    LOCKSTEP_ENTRY));
  void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = ::dlerror();
    return refused(
        fmt::format("cannot load '{}' as a shared library ({}): build it for this machine with "
                    "-shared -fPIC, and link all it needs",
                    path, why != nullptr ? why : "no reason given"));
  }
  if (opened) opened();
  using Entry = const lockstep_subject* (*)(std::uint32_t);
  const auto entry = reinterpret_cast<Entry>(::dlsym(library, LOCKSTEP_ENTRY));
  if (entry == nullptr) {
    ::dlclose(library);
    return refused(
        fmt::format("'{}' is a library without {}: export that function, extern \"C\" and with "
                    "LOCKSTEP_EXPORT",
                    path, LOCKSTEP_ENTRY));
  }
  Result<LoadedSubject> loaded = check_subject(entry(LOCKSTEP_ABI), path);
  if (!loaded) ::dlclose(library);
  return loaded;
}

}  // namespace lockstep::properties
