#include "properties/observe/training_checks.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <utility>

#include "properties/observe/early_wait.h"
#include "reference/construction_disagreement.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

namespace {

using properties::Environment;
using reference::PassKind;

}  // namespace

SelfChecks* TrainingChecks::checks() const {
  return rank_.observation.wrong_answer.empty() ? rank_.subject->self_checks() : nullptr;
}

void TrainingChecks::try_disagreement(const Roster& roster, const Memberships& memberships,
                                      LaneState& state) {
  const bool is_reset = rank_.program.disagreement.at_reset;
  if (roster.generation != (is_reset ? 1u : 0u)) return;
  const std::uint32_t own = rank_.environment.rank();
  const std::vector<std::uint32_t> members = members_of(rank_.program, roster, own);
  const std::optional<reference::Refusal> refusal = reference::refusal_of(rank_.program, members);
  if (!refusal) return;
  const bool disagrees = refusal->by == reference::Refusal::By::kEveryRank || refusal->rank == own;
  std::vector<std::uint64_t> before;
  state.record(before);
  properties::ObservedRefusal& seen = rank_.observation.refusals.emplace_back();
  seen.status =
      rank_.subject->attempt({rank_.parameters, state.buffers(), rank_.engine, rank_.program,
                              rank_.environment, memberships, disagrees, is_reset});
  std::vector<std::uint64_t> after;
  state.record(after);
  seen.keeps_state = before == after;
  seen.next_collective = gather_bytes(*memberships.front().group, seen.next_sequence);
}

Status TrainingChecks::gather_bytes(ProcessGroup& group, std::int64_t& sequence) {
  constexpr std::size_t kBytes = 5;
  std::array<std::byte, kBytes> mine{};
  std::vector<std::byte> all(kBytes * static_cast<std::size_t>(group.size()));
  Collective collective;
  collective.op = Op::kAllGather;
  collective.dtype = DType::kByte;
  collective.count = kBytes;
  collective.data = mine.data();
  collective.gathered = all.data();
  Work work;
  LOCKSTEP_RETURN_IF_ERROR(group.start(collective, work));
  sequence = work.sequence();
  rank_.note_wrong(flaw_of_early_wait(work));
  return wait_behind(work, {&group});
}

void TrainingChecks::look_at_failed_reset() {
  const bool has_reducer = rank_.subject->names_buckets() && !rank_.subject->has_failed_to_begin();
  if (has_reducer && !rank_.subject->poisoned())
    rank_.note_wrong("a reducer whose reset has failed does not refuse work");
}

void TrainingChecks::note_open_pass(const StepRecord& record) {
  if (!taken_.is_empty() && rank_.subject->is_amid_pass())
    taken_.note(rank_.parameters, record.hooks());
}

void TrainingChecks::end_step(const StepRecord& record, bool has_pass) {
  rank_.note_wrong(taken_.flaw(record.hooks()));
  if (SelfChecks* const own = checks(); own != nullptr && has_pass)
    rank_.note_wrong(own->memory_flaw(rank_.parameters, tensor_bytes() - own_bytes_));
}

// Of all tensors in the host memory of the rank.
std::uint64_t TrainingChecks::tensor_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& device : devices_) bytes += device->allocated_bytes();
  return bytes;
}

void TrainingChecks::try_without_reducer(const reference::Step& step,
                                         const reference::RankPass& pass,
                                         const std::vector<Edge>& outputs, const Tensor& one) {
  const bool is_synced = step.kind == PassKind::kSynced && !rank_.program.options.manual_sync &&
                         std::none_of(pass.forwards.begin(), pass.forwards.end(),
                                      [](const auto& each) { return each.local; });
  std::vector<Edge> roots;
  std::copy_if(outputs.begin(), outputs.end(), std::back_inserter(roots),
               [](const Edge& output) { return output.node; });
  if (!is_synced || roots.empty()) return;
  const std::vector<Tensor> gradients(roots.size(), one);
  const Status status = rank_.engine.backward(roots, gradients, true);
  if (status.code() != Code::kSecondBackward && status.code() != Code::kGraphFreed)
    rank_.note_wrong("a backward of a pass whose reducer was destroyed ends so: " +
                     status.to_string());
}

void TrainingChecks::ask_for_diagnosis() {
  if (!rank_.environment.of_case().asks_diagnosis) return;
  if (SelfChecks* const own = checks())
    rank_.note_wrong(own->diagnosis_flaw(rank_.environment.keeps_records()));
}

void TrainingChecks::ask_for_more() {
  if (!rank_.environment.of_case().asks_after_failure) return;
  if (SelfChecks* const own = checks()) rank_.note_wrong(own->refusal_flaw());
}

void TrainingChecks::try_ended_group(ProcessGroup& group) {
  const bool is_asked = rank_.environment.of_case().uses_ended_group;
  if (!is_asked || !rank_.observation.wrong_answer.empty()) return;
  group.abort(Status(Code::kInternal, "a second cause"));
  std::int64_t sequence = kNone;
  const Status status = gather_bytes(group, sequence);
  std::string& wrong = rank_.observation.wrong_answer;
  if (sequence != kNone)
    wrong = "a group that has ended starts a collective, which ends so: " + status.to_string();
  else if (status.ok() || status.code() == Code::kInternal)
    wrong = "a group that has ended does not say why: " + status.to_string();
}

void TrainingChecks::try_join_that_differs() {
  const Environment& asked = rank_.environment.of_case();
  if (asked.unlike_join == Environment::UnlikeJoin::kNone) return;
  if (rank_.environment.leaves_at_once() || !rank_.environment.is_undisturbed()) return;
  rank_.environment.begin_step(static_cast<std::uint32_t>(rank_.program.steps.size()));
  // All ranks join, also one with a wrong answer before.
  if (SelfChecks* const own = rank_.subject->self_checks()) rank_.note_wrong(own->join_flaw(asked));
}

void TrainingChecks::look_at_layouts() {
  if (!rank_.environment.of_case().reads_layouts) return;
  if (SelfChecks* const own = checks()) rank_.note_wrong(own->layout_flaw());
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
