#include "properties/subject/torch_subject.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "properties/process/child.h"
#include "properties/process/process_end.h"

namespace lockstep::properties {
namespace {

namespace fs = std::filesystem;

constexpr const char* kProgram = "lockstep-torch";
constexpr auto kProbeLimit = std::chrono::seconds(60);  // for a busy machine that loads libtorch

// Returns the line with the greeting, or the first one that the program prints, on either stream;
// if it prints none, how it ended. Some versions print warnings while they are loaded.
std::string answer_of(const fs::path& program) {
  std::FILE* pipe = ::popen(fmt::format("exec '{}' --probe 2>&1", program.string()).c_str(), "r");
  if (pipe == nullptr) return "it cannot be started";
  std::array<char, 400> line{};
  std::string out;
  while (std::fgets(line.data(), line.size(), pipe) != nullptr)
    if (out.empty() || std::string_view(line.data()).starts_with(kTorchGreeting)) out = line.data();
  const int status = ::pclose(pipe);
  while (!out.empty() && out.back() == '\n') out.pop_back();
  if (status != 0 && (out.empty() || out.starts_with(kTorchGreeting)))
    return "it " + describe_end(status);
  return out.empty() ? "it says nothing" : out;
}

// Does so in a child process, as a libtorch may hang while it is loaded.
std::string probe(const fs::path& program) {
  return ask_in_child([&] { return answer_of(program); }, kProbeLimit,
                      fmt::format("it says nothing within {} s", kProbeLimit.count()));
}

fs::path own_folder() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path();
}

bool is_version(const std::string& text) {
  return text.find_first_not_of("0123456789.") == std::string::npos &&
         torch_model::version_from(text).has_value();
}

tl::unexpected<Status> not_available(std::string what) {
  return failed(Status(Code::kInvalidArgument, std::move(what)));
}

// A program, and what says so in one line where it is missing.
struct Place {
  fs::path program;
  std::string missing;
};

Place place_of(const std::string& which, const fs::path& root, const fs::path& folder) {
  if (which.empty())
    return {folder / kProgram,
            fmt::format("the subject 'torch' is not built: there is no {} beside this program; "
                        "install libtorch (ci/setup --torch) and build anew",
                        kProgram)};
  const fs::path versions = folder / kTorchVersions;
  if (root.empty())
    return {versions / which / kProgram,
            fmt::format("the subject 'torch:{0}' is not built: ci/torch --version {0} fetches that "
                        "PyTorch and builds the subject",
                        which)};
  return {versions / "with" / root.relative_path() / kProgram,
          fmt::format("the subject 'torch:{0}' is not built: ci/torch --with {0} builds it",
                      root.string())};
}

}  // namespace

Capabilities torch_capabilities() {
  using enum Capability;
  return Capabilities::of(
      {kDynamic,   kNoSync,      kNoGrad,  kCheckpoint,  kSeveralForwards, kSeveralBackwards,
       kDiscard,   kKeepOutputs, kShared,  kFrozen,      kFloat64,         kFloat16,
       kStrides,   kZeroSize,    kSpecial, kErrors,      kRecovery,        kViews,
       kStatic,    kHooks,       kIgnored, kSparse,      kRounding,        kFaults,
       kUndefined, kInterleaved, kBetween, kHoldOutputs, kLaterBackward,   kAbsent});
}

// As the constructors of the reducer are (interface.h). A version between two of those that were
// tested has what the older one has.
Capabilities torch_capabilities(const torch_model::Version& version) {
  using enum Capability;
  Capabilities out = torch_capabilities();
  if (version >= torch_model::Version{2, 4, 1}) out = out.with(kUpdatesGroup);
  if (version >= torch_model::Version{2, 9, 1}) out = out.with(kSkipsUnused);
  if (version >= torch_model::Version{2, 15, 0})
    out = out.with(kBatchedCopy).with(kLazyBuckets).with(kThreeLimits).with(kFinalization);
  return out;
}

fs::path torch_root(const fs::path& given) {
  std::error_code error;
  for (const fs::path& root : {given, given / "torch", given / ".." / ".."})
    if (fs::exists(root / "lib" / "libtorch_cpu.so", error)) return fs::canonical(root, error);
  return {};
}

std::vector<std::string> built_torch_versions() { return built_torch_versions(own_folder()); }

std::vector<std::string> built_torch_versions(const fs::path& folder) {
  std::vector<std::string> out;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder / kTorchVersions, error)) {
    const std::string name = entry.path().filename().string();
    std::error_code ignored;
    if (is_version(name) && fs::exists(entry.path() / kProgram, ignored)) out.push_back(name);
  }
  std::sort(out.begin(), out.end(), [](const std::string& a, const std::string& b) {
    return torch_model::version_from(a) < torch_model::version_from(b);
  });
  return out;
}

Result<Subject> torch_subject(const std::string& which) {
  return torch_subject(which, own_folder());
}

Result<Subject> torch_subject(const std::string& which, const fs::path& folder) {
  Subject subject;
  subject.kind = Subject::Kind::kTorch;
  subject.id = which;
  fs::path root;
  if (!which.empty() && !is_version(which)) {
    root = torch_root(which);
    if (root.empty())
      return not_available(fmt::format(
          "the subject 'torch:{0}': '{0}' is no version, as 2.9.1, and no folder with a PyTorch "
          "(lib/libtorch_cpu.so)",
          which));
    subject.id = root.string();
  }
  Place place = place_of(which, root, folder);
  std::error_code error;
  const bool is_there = fs::exists(place.program, error);
  // The system's libtorch may be the version that is asked for.
  const bool may_be_system = !is_there && root.empty() && fs::exists(folder / kProgram, error);
  if (may_be_system) place.program = folder / kProgram;
  if (!is_there && !may_be_system) return not_available(place.missing);
  const std::string said = probe(place.program);
  if (!said.starts_with(kTorchGreeting)) {
    if (may_be_system) return not_available(place.missing);
    return not_available(fmt::format("the subject '{}' cannot run: {} says: {}", subject.name(),
                                     place.program.string(), said));
  }
  const std::optional<torch_model::Version> known =
      torch_model::version_from(said.substr(std::string(kTorchGreeting).size()));
  if (!known) return not_available(place.missing);
  if (may_be_system && !which.empty()) {
    // The third number is not compared: Debian's 1.13.1 calls itself 1.13.0.
    const std::optional<torch_model::Version> asked = torch_model::version_from(which);
    if (known->major != asked->major || known->minor != asked->minor)
      return not_available(place.missing);
  }
  subject.rank_program = place.program.string();
  subject.capabilities = torch_capabilities(*known);
  subject.profile = Profile::torch(*known);
  return subject;
}

void hold_to_lockstep(Subject& subject) {
  subject.is_held_to_lockstep = subject.profile.is_torch();
  const bool gradients_alone = subject.profile.gradients_alone;
  subject.profile = Profile::lockstep();
  subject.profile.gradients_alone = gradients_alone;
  // The contract has no passes that the user ends by hand.
  subject.capabilities = subject.capabilities.without(Capability::kFinalization);
}

}  // namespace lockstep::properties
