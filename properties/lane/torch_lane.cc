#include "properties/lane/torch_lane.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "properties/lane/process_ranks.h"

namespace lockstep::properties {
namespace {

constexpr const char* kProgram = "lockstep-torch";
constexpr std::uint32_t kProcessesEvery = 4;  // one case in this many; its key decides

bool needs_processes(const Case& c) {
  using enum faults::Kind;
  const auto& faults = c.faults.faults;
  return std::any_of(faults.begin(), faults.end(), [](const faults::Fault& fault) {
    return fault.kind == kRankExit || fault.kind == kRankPause || fault.kind == kOperationStall;
  });
}

class TorchLane final : public Lane {
 public:
  explicit TorchLane(const Subject& subject) : processes_(subject) {
    ::setenv("GLOG_minloglevel", "2", 0);  // for the ranks, which otherwise log every hook
  }
  void run(const Case& c, const reference::Expectation&, Observation& observation) override {
    if (needs_processes(c) || c.program.key % kProcessesEvery == 0)
      processes_.run(c, observation);
    else
      processes_.run_as_threads(c, observation);
  }

 private:
  ProcessRanks processes_;
};

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

std::unique_ptr<Lane> make_torch_lane(const Subject& subject) {
  return std::make_unique<TorchLane>(subject);
}

}  // namespace lockstep::properties
