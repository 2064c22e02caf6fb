// ReplicaSet holds the parameters that a reducer reduces, in all replicas of the model (P15), and
// the text by which all ranks compare their models and options at construction (B4).
//
// Gradients are what hooks report. A gradient has a number: reduced parameter p has gradient p, and
// one more for each further replica of it, which count from the number of reduced parameters on.
// The reducer's core counts by the same numbers.
//
// Threads: one call at a time for what changes. A hook writes only the fields of its own parameter.
// Ownership: parameters are shared with the caller.
// Failure: build() returns kInvalidArgument for lists that do not fit together, and for parameters
// that cannot be reduced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "reducer/autograd/node_map.h"
#include "reducer/autograd/parameter.h"
#include "reducer/bucket/layout.h"
#include "reducer/options.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// A gradient that hooks report: that of a parameter of the first replica, or of the corresponding
// parameter of another replica.
struct ReplicaGradient {
  Ref<Parameter> parameter;
  std::uint32_t number = 0;
};

// One parameter that the reducer reduces. The fields that every pass needs of every parameter lie
// in one cache line. The graph has run since the reducer last read them, and with many small
// parameters the cache misses are most of the cost of a pass. So this is the record of several
// parts: UsageTracker writes the use, BucketStore what concerns the bucket.
struct alignas(64) ReducedParameter : ReplicaGradient {
  // Whether this rank used the parameter, as of the moment when it became ready (G6).
  bool used = false;
  bool in_use = false;  // Static mode: whether some rank used the parameter in the first pass.
  // The parameter's further replicas are neighbours, from first_further_replica on.
  std::uint32_t further_replica_count = 0;
  std::uint32_t first_further_replica = 0;
  std::uint32_t info = 0;  // The parameter's index in infos().
  std::size_t bucket = 0;
  bool is_grad_saved = false;  // True if `saved_grad` is defined.
  // True if pack_bucket() has to copy the gradient, because it is on a GPU.
  bool to_pack = false;
  bool to_alias = false;  // True if the gradient becomes `bucket_view` after that.
  // The parameter's memory in the bucket, dense, with the parameter's strides; undefined if the
  // parameter is sparse.
  Tensor bucket_view;
  // View mode: the gradient that `bucket_view` held, for as long as it may have to be restored
  // (G5).
  Tensor saved_grad;
};

class ReplicaSet {
 public:
  // Reads the list of parameters, and the lists of the replicas in the options. It first removes
  // the ignored names from all lists. Returns each distinct parameter of the first replica.
  Result<std::vector<Ref<Parameter>>> build(std::vector<Ref<Parameter>>& parameters,
                                            ReducerOptions& options);

  // The reduced parameters, by number.
  std::size_t size() const { return reduced_.size(); }
  bool empty() const { return reduced_.empty(); }
  ReducedParameter& operator[](std::size_t parameter) { return reduced_[parameter]; }
  const ReducedParameter& operator[](std::size_t parameter) const { return reduced_[parameter]; }
  auto begin() { return reduced_.begin(); }
  auto end() { return reduced_.end(); }
  auto begin() const { return reduced_.begin(); }
  auto end() const { return reduced_.end(); }

  // The gradients, by number.
  std::size_t gradient_count() const { return reduced_.size() + further_.size(); }
  ReplicaGradient& gradient(std::size_t number) {
    if (number < reduced_.size()) return reduced_[number];
    return further_[number - reduced_.size()];
  }
  ReducedParameter& parameter_of(std::size_t gradient) {
    return reduced_[gradient < reduced_.size() ? gradient
                                               : further_[gradient - reduced_.size()].reduced];
  }
  // Calls `call` with the gradient of each replica of the parameter, in the order of the replicas.
  template <class Call>
  void each_replica(const ReducedParameter& reduced, const Call& call) const {
    call(static_cast<const ReplicaGradient&>(reduced));
    for (std::uint32_t i = 0; i < reduced.further_replica_count; ++i)
      call(further_[reduced.first_further_replica + i]);
  }
  // The same for all replicas but the first.
  template <class Call>
  void each_further_replica(const ReducedParameter& reduced, const Call& call) const {
    for (std::uint32_t i = 0; i < reduced.further_replica_count; ++i)
      call(further_[reduced.first_further_replica + i]);
  }

  // True if the gradients lie on more than one device. Then several workers may call their hooks.
  bool has_several_devices() const { return has_several_devices_; }

  // Every distinct parameter of the first replica, frozen ones included.
  const std::vector<ParameterInfo>& infos() const { return infos_; }
  // One line for the options, and one for each parameter and buffer of each replica.
  const std::vector<std::string>& agreement() const { return agreement_; }

 private:
  struct FurtherReplica : ReplicaGradient {
    std::size_t reduced = 0;
  };

  Status add_parameter(const Ref<Parameter>& parameter, const ReducerOptions& options);
  Status add_further_replicas(std::size_t listed, const Parameter& parameter,
                              const std::vector<Replica>& replicas, NodeMap& members);
  Status check_devices() const;
  void describe_buffers(const ReducerOptions& options);

  std::vector<ReducedParameter> reduced_;
  std::vector<FurtherReplica> further_;  // The gradients of the replicas beyond the first.
  std::vector<ParameterInfo> infos_;
  std::vector<std::string> agreement_;
  bool has_several_devices_ = false;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
