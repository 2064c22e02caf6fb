// StepRecord: what is recorded of the steps of a rank: gradients and where they lie, collectives,
// hooks, times, and flight records.
//
// Threads: the one that trains, but for the observers of a group (watch_groups()), which any thread
// of the rank may call. It is a hook of the parameters (record_hooks()), and outlives their use.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "properties/observe/module_state.h"
#include "properties/observe/pass_recorder.h"
#include "properties/observe/state_watch.h"
#include "properties/observe/tensor_memory.h"
#include "properties/observe/training_rank.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class StepRecord {
 public:
  explicit StepRecord(TrainingRank& rank)
      : rank_(rank), watch_(rank.environment), recorder_(rank.program, watch_) {}

  StateWatch& watch() { return watch_; }
  PassRecorder& recorder() { return recorder_; }
  const std::vector<properties::ObservedHook>& hooks() const { return recorder_.hooks(); }

  // Hooks run in the order in which they were added: call this whenever the subject's may be new.
  void record_hooks();
  void stop_recording();
  // Wraps each group, so that its collectives are seen. Reducers that share a group share its
  // wrapper. `visit` is called before each collective, and when it has been started.
  void watch_groups(Memberships& memberships, const std::function<void()>& visit);

  void begin_step();
  // Call this before anything writes to gradients: snapshot() says which lie where they were then.
  void remember_storages();
  // A forward has returned outputs; its graph was built at that time. Manual sync begins its pass
  // later, with note_sync().
  void note_forward(reference::PassKind kind, const std::vector<Edge>& outputs,
                    std::int64_t built_ns);
  void note_sync(std::int64_t begun_ns);
  void note_backward(std::int64_t begun_ns, std::int64_t ended_ns);
  // Returns whether the rank has started a collective of its pass. With a join or two reducers
  // other collectives look the same, and the subject is asked.
  bool has_launched() const;
  // Records how the step has ended.
  void snapshot(properties::ObservedStep& observed, LaneState& state);

  // Returns whether the rank writes these records, or more. They cost time.
  bool writes(properties::Environment::Records records) const;
  // Only the first flight record of a generation is stored.
  void note_flight_record();
  // Called when nothing runs any more: records the state of this rank's current step.
  void note_end();

 private:
  void look_at(const Collective& collective, std::uint32_t reducer);
  void note_armed(std::int64_t from_ns);
  std::uint32_t first_in_storage(std::size_t parameter) const;

  TrainingRank& rank_;
  TensorMemory memory_;
  StateWatch watch_;
  PassRecorder recorder_;
  // Guards the observation's wrong_padding. It is not the platform's mutex, for the same reason as
  // PassRecorder::plain_mutex_.
  std::mutex padding_mutex_;
  std::vector<Ref<Storage>> storages_;
  properties::SeenPassTimes seen_times_;  // of this step
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
