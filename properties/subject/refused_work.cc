#include "properties/subject/refused_work.h"

#include <fmt/format.h>

#include <vector>

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

// What a failure names, besides its code and its text.
std::string names_of(const Failure& failure) {
  Failure names = failure;
  names.code = Code::kPoisoned;
  names.detail.clear();
  names.later.clear();
  return names.to_string();
}

// Returns what is wrong with the refusal of a call, or an empty text.
std::string flaw_of(const char* call, const Status& answer, const Failure& cause) {
  const auto is = [&](const char* what) {
    return fmt::format("{} of a reducer that refuses work {}: {}", call, what, answer.to_string());
  };
  if (answer.code() != Code::kPoisoned) return is("is not refused");
  const Failure& refusal = answer.failure();
  if (names_of(refusal) != names_of(cause)) return is("names something else than the failure");
  const bool says_why = refusal.detail.find(name_of(cause.code)) != std::string::npos &&
                        refusal.detail.ends_with(cause.detail);
  return says_why ? "" : is("does not say why");
}

}  // namespace

std::string flaw_of_refusals(DataParallel& parallel, bool manual_sync) {
  if (parallel.poisoned().ok()) return {};
  const Failure cause = parallel.poisoned().failure();
  bool has_run = false;
  std::vector<Edge> outputs;
  const DataParallel::Module module = [&](std::vector<Edge>&) {
    has_run = true;
    return Status();
  };
  std::string flaw = flaw_of("a forward", parallel.forward(module, outputs), cause);
  if (flaw.empty()) {
    const DataParallel::NoSync guard(parallel);
    flaw = flaw_of("a local forward", parallel.forward(module, outputs), cause);
  }
  if (flaw.empty() && has_run) flaw = "a forward that is refused runs the module";
  if (flaw.empty() && manual_sync)
    flaw = flaw_of("sync_gradients", parallel.sync_gradients(outputs), cause);
  if (flaw.empty()) flaw = flaw_of("end_join", parallel.end_join(), cause);
  if (!flaw.empty()) return flaw;
  const Status status = parallel.forward_without_gradients(module);
  if (!status.ok() || !has_run)
    return "a forward without gradients does not run: " + status.to_string();
  return {};
}

std::string flaw_of_ended_join(DataParallel& parallel) {
  if (!parallel.poisoned().ok()) return {};
  const Status status = parallel.end_join();
  return status.code() == Code::kInvalidArgument
             ? ""
             : "a join that an error has ended can be ended once more: " + status.to_string();
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
