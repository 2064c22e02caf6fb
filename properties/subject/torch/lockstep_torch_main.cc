// The program `lockstep-torch`: a fork server for ranks' processes of the subject `torch`, which
// have one thread until they train; or the process of one rank. lockstep starts it. For a person
// only `lockstep-torch --probe` is useful; it prints the version of libtorch.
#include <c10/core/CPUAllocator.h>
#include <torch/version.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "properties/lane/rank_fork_server.h"
#include "properties/subject/torch/training.h"
#include "properties/subject/torch_subject.h"

namespace {

using lockstep::torch_subject::Planted;

class TorchRanks final : public lockstep::properties::RankProgram {
 public:
  explicit TorchRanks(Planted planted) : planted_(planted) {}
  lockstep::Status load(const std::string&) override { return {}; }
  const lockstep::properties::Profile& profile() const override { return profile_; }
  void run(const lockstep::properties::RankJob& job,
           lockstep::properties::RankObservation& observation,
           lockstep::faults::Fired& fired) override {
    lockstep::torch_subject::train(job, observation, fired, profile_.policies, planted_);
  }

 private:
  const Planted planted_;
  const lockstep::properties::Profile profile_ = lockstep::properties::Profile::torch(
      {TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR, TORCH_VERSION_PATCH});
};

// Returns the bug that the environment asks for; only tests of the oracles do.
Planted planted() {
  const char* const asked = std::getenv("LOCKSTEP_TORCH_PLANTED");
  const std::string name = asked == nullptr ? "" : asked;
  if (name == "swallowed-errors") return Planted::kSwallowedErrors;
  if (name == "skipped-endings") return Planted::kSkippedEndings;
  return Planted::kNothing;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  if (command == "--probe") {
    (void)c10::GetCPUAllocator();  // so that what is printed comes from a loaded libtorch
    std::printf("%s%s\n", lockstep::properties::kTorchGreeting, TORCH_VERSION);
    return 0;
  }
  const bool is_fork_server = command == "rank-fork-server";
  if (argc != 3 || (!is_fork_server && command != "rank-server")) {
    std::fprintf(stderr, "lockstep-torch: started by lockstep --subject torch, not by hand\n");
    return 1;
  }
  // Gloo prints there which ranks are connected, from PyTorch 2.7 or so on.
  if (std::freopen("/dev/null", "w", stdout) == nullptr) return 1;
  lockstep::torch_subject::prepare_process();
  TorchRanks ranks(planted());
  const int fd = std::atoi(argv[2]);
  if (is_fork_server) return lockstep::properties::serve_rank_forks(fd, ranks);
  return lockstep::properties::serve_ranks({fd}, ranks);  // on a host of its own
}
