// PassCore decides when the gradients of a pass are ready, and which bucket is reduced next. It has
// no threads, no tensors and no process groups: events go in, actions come out, and its owner
// carries the actions out. Who has tensors, streams and groups of their own can use it alone;
// example.cc shows how.
//
//   event                          what the owner does then
//   begin_pass()                   set_reachable() in dynamic mode
//   on_backward_begin()            runs the backward
//   on_backward_reached()          next_copy() and next_launch() until each returns kNone
//   on_gradient_arriving(gradient) false: the pass fails, as the gradient was ready already
//   on_hook(gradient)              carries the returned action out
//   on_copied(parameter)           next_launch() until it returns kNone
//   on_launched(bucket)            the same
//   on_backward_end()              carries the returned action out; then next_copy(), next_launch()
//   on_usage_agreed(...)           the same
//   on_pass_complete()             waits for the buckets, and unpacks them, before it says this
//
// Indices: a gradient is what hooks report. Parameter p has gradient p, and one more for each
// further replica of it, which count from the number of parameters on. The owner numbers buckets in
// the order in which they are launched.
// Modes: in plain mode a pass is complete when every gradient had its hook. In dynamic mode
// (find_unused_parameters) gradients that the outputs do not reach are ready with the first hook,
// and all others when the backward ends. In static mode the first pass counts the hooks of each
// gradient, and is reduced when its backward ends; in later passes a gradient is ready after as
// many hooks as in the first one.
// Order: buckets are launched in index order, each once a pass, whatever order they become ready
// in. Where ranks agree on used parameters, the usage map follows the last bucket (dynamic mode),
// or comes before the first one (the first static pass).
// Threads: none of its own. Hooks may run on several threads; the owner's mutex guards all calls.
// An action may be carried out without the mutex: meanwhile no other call returns the same action,
// and no other bucket is launched.
// Failure: an owner that cannot carry an action out says nothing more about the pass; the next
// begin_pass() forgets it. Calls that do not fit the state are programmer errors.
// Memory: nothing is allocated after set_buckets().
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "reducer/base/build_namespace.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace core {

enum class Mode : std::uint8_t { kPlain, kDynamic, kStatic };

// When buckets may be launched: as soon as they are ready, or not before backward has ended.
enum class LaunchTime : std::uint8_t { kWhenReady, kAfterBackward };

struct Action {
  enum class Kind : std::uint8_t {
    kNone,            // There is nothing to do until the next event.
    kCopyToBucket,    // Copy the gradient of parameter `index` to its bucket; then on_copied().
    kLaunch,          // Pack bucket `index`, and start its reduction; then on_launched().
    kLaunchUsageMap,  // Start the sum of the usage map. Static mode: wait for it, and
                      // on_usage_agreed().
  };
  Kind kind = Kind::kNone;
  std::uint32_t index = 0;
};

class PassCore {
 public:
  PassCore(Mode mode, LaunchTime launch_time) : mode_(mode), launch_time_(launch_time) {}

  // Set-up. add_replica() adds one more gradient to the parameter that was added last.
  // set_buckets() says which bucket each parameter is in, and may be called again between two
  // passes.
  void add_parameter();
  void add_replica();
  void set_buckets(std::span<const std::uint32_t> bucket_of_parameter, std::size_t buckets);
  // Forgets all passes, as after a change of the members.
  void forget_passes();

  void begin_pass();
  // Dynamic mode: which gradients the outputs of the pass reach; the others are unused.
  void set_reachable(const std::vector<bool>& is_reachable);
  // A pass may have several backwards, one after the other.
  void on_backward_begin();
  // A backward has reached a gradient. Only the first call of a pass has an effect.
  void on_backward_reached();
  // A backward is about to add to the gradient. False: its last expected hook has run already.
  [[nodiscard]] bool on_gradient_arriving(std::size_t gradient);
  // The gradient's hook runs. Returns kCopyToBucket if the gradients of all replicas are ready now.
  [[nodiscard]] Action on_hook(std::size_t gradient);
  // Returns true if this completed the parameter's bucket.
  bool on_copied(std::size_t parameter);
  void on_launched(std::size_t bucket);
  // Returns kLaunchUsageMap if the group has to agree on the used parameters before anything else.
  [[nodiscard]] Action on_backward_end();
  // Static mode: the group knows which parameters its first pass used.
  void on_usage_agreed();
  // This rank has no backward in this pass, and contributes zeros. Like on_backward_end(), but all
  // parameters are ready, and no hooks are counted.
  [[nodiscard]] Action on_no_backward();
  void on_pass_complete();

  // The next parameter that is ready without a hook: kCopyToBucket, or kNone.
  [[nodiscard]] Action next_copy();
  // The next collective that may start: kLaunch, kLaunchUsageMap or kNone.
  [[nodiscard]] Action next_launch();

  bool is_first_static_pass() const { return mode_ == Mode::kStatic && !has_completed_pass_; }
  bool is_usage_agreed() const { return is_usage_agreed_; }
  bool is_all_ready() const { return unready_ == 0; }
  bool is_all_launched() const { return buckets_.next == buckets_.pending.size(); }
  std::size_t next_bucket() const { return buckets_.next; }
  std::size_t gradient_count() const { return parameters_.size() + further_.size(); }
  bool is_gradient_ready(std::size_t gradient) const { return at(gradient).is_ready; }
  bool is_parameter_ready(std::size_t parameter) const {
    return parameters_[parameter].are_all_ready;
  }
  std::uint32_t hooks_expected(std::size_t gradient) const { return at(gradient).hooks_expected; }
  // Whether the gradient is ready in this pass although none of its hooks has run.
  bool was_taken_for_unused(std::size_t gradient) const {
    return at(gradient).is_ready && at(gradient).hooks_finished == 0;
  }

 private:
  struct Gradient {
    std::uint32_t hooks_started = 0;   // The accumulations that have started in this pass.
    std::uint32_t hooks_finished = 0;  // The hooks that ran after these accumulations.
    std::uint32_t hooks_expected = 1;  // The gradient is ready after this number of hooks.
    bool is_ready = false;
  };
  // Two of them fit into a cache line: with many small parameters, misses are most of the cost.
  struct Parameter : Gradient {
    bool are_all_ready = false;  // True once the gradients of all replicas are ready.
    std::uint32_t replicas_pending = 1;
    std::uint32_t replicas = 1;
    std::uint32_t bucket = 0;
    std::uint32_t last_hook = 0;  // The number of its last hook in this pass, from 1; 0: none ran.
  };
  struct FurtherGradient : Gradient {
    std::uint32_t parameter = 0;
  };
  struct Buckets {
    std::vector<std::uint32_t> members;  // The number of members of each bucket.
    std::vector<std::uint32_t> pending;  // The number of those that are not copied.
    std::size_t next = 0;                // The next bucket to be launched.
    bool is_launching = false;
  };
  // What next_copy() goes through, in this order.
  struct Sweep {
    enum class Of : std::uint8_t { kNothing, kUnusedGradients, kParameters };
    Of of = Of::kNothing;
    std::size_t at = 0;
    std::vector<std::uint32_t> unused;      // The gradients that no hook will report in this pass.
    std::vector<std::uint32_t> parameters;  // The order at the end of a backward.
  };

  const Gradient& at(std::size_t gradient) const;
  Gradient& at(std::size_t gradient);
  std::size_t parameter_of(std::size_t gradient) const;
  bool is_last_pending(std::size_t gradient);
  void begin_sweep(Sweep::Of of);
  void begin_first_static_sweep();
  Action make_ready(std::size_t parameter);

  const Mode mode_;
  const LaunchTime launch_time_;
  bool has_completed_pass_ = false;
  bool is_usage_agreed_ = false;
  std::vector<Parameter> parameters_;
  std::vector<FurtherGradient> further_;
  Buckets buckets_;
  Sweep sweep_;
  std::size_t unready_ = 0;  // The number of parameters that are not copied.
  std::uint32_t hooks_ = 0;  // The number of hooks that have run in this pass.
  bool is_reached_ = false;  // True once unused gradients have been swept, or will not be.
  bool in_backward_ = false;
  bool is_map_launched_ = false;
};

}  // namespace core
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
