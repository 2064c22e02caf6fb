#include "properties/subject/torch_subject.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <string>
#include <utility>

namespace lockstep::properties {
namespace {

constexpr const char* kProgram = "lockstep-torch";

// Returns the first line that the program prints, on either stream.
std::string first_line_of(const std::filesystem::path& program) {
  std::FILE* pipe = ::popen(fmt::format("'{}' --probe 2>&1", program.string()).c_str(), "r");
  if (pipe == nullptr) return {};
  std::array<char, 400> line{};
  const bool is_read = std::fgets(line.data(), line.size(), pipe) != nullptr;
  ::pclose(pipe);
  std::string out = is_read ? line.data() : "";
  while (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

}  // namespace

Capabilities torch_capabilities() {
  using enum Capability;
  return Capabilities()
      .with(kDynamic)
      .with(kNoSync)
      .with(kNoGrad)
      .with(kCheckpoint)
      .with(kSeveralForwards)
      .with(kSeveralBackwards)
      .with(kDiscard)
      .with(kKeepOutputs)
      .with(kShared)
      .with(kFrozen)
      .with(kFloat64)
      .with(kFloat16)
      .with(kStrides)
      .with(kZeroSize)
      .with(kSpecial)
      .with(kErrors)
      .with(kRecovery)
      .with(kViews)
      .with(kStatic)
      .with(kHooks)
      .with(kIgnored)
      .with(kSparse);
}

Result<Subject> torch_subject() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  return torch_subject(self.parent_path());
}

Result<Subject> torch_subject(const std::filesystem::path& folder) {
  const auto refused = [](std::string what) {
    return failed(Status(Code::kInvalidArgument, std::move(what)));
  };
  Subject subject;
  subject.kind = Subject::Kind::kTorch;
  const std::filesystem::path program = folder / kProgram;
  std::error_code error;
  if (!std::filesystem::exists(program, error))
    return refused(
        fmt::format("the subject 'torch' is not built: there is no {} beside this program; install "
                    "libtorch (ci/setup --torch) and build anew",
                    kProgram));
  const std::string said = first_line_of(program);
  if (!said.starts_with(kTorchGreeting))
    return refused(fmt::format("the subject 'torch' cannot run: {} says: {}", program.string(),
                               said.empty() ? "nothing" : said));
  subject.rank_program = program.string();
  subject.capabilities = torch_capabilities();
  subject.profile = Profile::torch();
  return subject;
}

}  // namespace lockstep::properties
