// TrainingSubject: the interface through which the training loop drives a reducer under test. The
// production reducer is one; a user's reducer from a shared library (properties/subject) is
// another.
//
// Threads and order are those of DataParallel: all calls but the hooks come from the rank's own
// thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "properties/observe/environment.h"
#include "properties/observe/observation.h"
#include "reducer/data_parallel.h"
#include "reference/program.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// A construction or a reset that all ranks must refuse (reference/construction_disagreement.h).
struct DisagreeingAttempt {
  const std::vector<Ref<Parameter>>& parameters;
  const std::vector<Ref<Buffer>>& buffers;
  Engine& engine;
  const reference::Program& program;
  RankEnvironment& environment;
  const Memberships& memberships;
  bool disagrees = false;  // whether this rank is the one that differs
  bool is_reset = false;
};

// What a subject that can look into its reducers finds wrong with them: each returns that, or an
// empty text. The thread that trains calls them, outside of backward, but for padding_flaw().
class SelfChecks {
 public:
  virtual ~SelfChecks() = default;
  // A synced pass is complete: `bytes` is the host memory of all tensors that the rank did not have
  // before its reducers were constructed.
  virtual std::string memory_flaw(const std::vector<Ref<Parameter>>& parameters,
                                  std::uint64_t bytes) = 0;
  // The rank is done: of the layouts (B3).
  virtual std::string layout_flaw() = 0;
  // Of the answer to a diagnosis that is asked for (T1). `keeps_records`: as
  // RankEnvironment::keeps_records().
  virtual std::string diagnosis_flaw(bool keeps_records) = 0;
  // Of the answers of reducers that refuse work and are asked for more of it (P12).
  virtual std::string refusal_flaw() = 0;
  // All ranks of a group are done, and join uneven inputs with options in which one rank differs
  // (S2), as the environment says. The group has failed afterwards.
  virtual std::string join_flaw(const properties::Environment& environment) = 0;
  // Of the padding of the bucket that a collective is about to send (B3), on the thread that starts
  // it.
  virtual std::string padding_flaw(const Collective& collective, std::uint32_t reducer) = 0;
};

class TrainingSubject {
 public:
  virtual ~TrainingSubject() = default;
  virtual Status construct(const std::vector<Ref<Parameter>>& parameters,
                           const std::vector<Ref<Buffer>>& buffers, Engine& engine,
                           const reference::Program& program, RankEnvironment& environment,
                           Memberships memberships) = 0;
  // Whether the last construct() failed, so that there is nothing to reset. The loop may call
  // construct() again at any time between two steps; it replaces the earlier reducer.
  virtual bool has_failed_to_begin() const { return false; }
  // Tries to construct, or to reset, with the program's disagreement, and returns what it was told.
  // The loop calls construct() or reset() on the same groups afterwards. Subjects without the
  // capability kDisagreements are not asked.
  virtual Status attempt(const DisagreeingAttempt&) {
    return Status(Code::kInternal, "this subject cannot be constructed in disagreement");
  }
  virtual Status forward(reference::PassKind kind, const DataParallel::Module& module,
                         std::vector<Edge>& outputs) = 0;
  // For manual sync (P13): called after the last forward of a synced step.
  virtual Status sync_gradients(std::vector<Edge>&) { return {}; }
  // For uneven inputs (S2): begin_join() is called before the first step and after a reset,
  // end_join() when the rank has no more inputs.
  virtual Status begin_join(const reference::Program&) { return {}; }
  virtual Status end_join() { return {}; }
  virtual Status check_complete() = 0;
  virtual void abort(const Status& cause) = 0;
  // Destroys the reducers, as a training loop does that an exception leaves. They are constructed
  // again before any other call. Returns whether one was in the middle of a pass and had launched
  // buckets of it.
  virtual bool destroy_reducers() { return false; }
  virtual Status reset(Memberships memberships) = 0;
  // Whether it refuses further work because of an earlier failure.
  virtual bool poisoned() const = 0;
  virtual bool launched_in_pass() const = 0;
  // Whether a pass has had a backward, and goes on in a further one; outside of backward.
  virtual bool is_amid_pass() const { return false; }
  // Whether the subject's collectives say which bucket they reduce (Collective::bucket). The
  // overlap oracle needs this to judge which hook launched each bucket.
  virtual bool names_buckets() const { return false; }
  // How many buckets a pass reduces, in all reducers together; only asked if they have names.
  virtual std::uint32_t bucket_count() const { return 0; }
  // Returns the parameters' indices in the order that the buckets follow (B2); empty before the
  // rebuild.
  virtual std::vector<std::uint32_t> rebuilt_order() const { return {}; }
  // Returns the current layout as text (B3), if the case asked for it.
  virtual std::string saved_layout() const { return {}; }
  // Appends the times of the last pass of each reducer (T3), if the subject has them.
  virtual void take_pass_times(std::vector<properties::ObservedPassTimes>& out) const {
    static_cast<void>(out);
  }
  // Returns the rank's flight record (T1), if the subject has one.
  virtual std::optional<FlightRecord> flight_record() const { return std::nullopt; }
  // Returns the trace of the reducer whose flight record that is, as text, if the subject has one.
  virtual std::string trace_text() const { return {}; }
  // Called on the thread that starts the collective, just before it starts: which of the reducers
  // that share a group starts it.
  virtual std::uint32_t reducer_of(const Collective&) const { return 0; }
  // The checks that the subject has of itself; null without any.
  virtual SelfChecks* self_checks() { return nullptr; }
  // Appends the collectives of passes since the last call.
  virtual void take_trace(std::vector<properties::ObservedCollective>& out) = 0;
};

using SubjectFactory = std::function<std::unique_ptr<TrainingSubject>()>;

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
