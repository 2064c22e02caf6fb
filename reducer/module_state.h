// ModuleState: what the ranks of a data-parallel model hold in common besides gradients: the values
// of parameters, and buffers, such as the running means of a normalization (contract S3).
//
// Buffer: a tensor of the model that no gradient belongs to. Its tensor may be replaced at any time
// between forwards, by one of the same shape and dtype, on the same device: it is read anew for
// every broadcast. Threads: the one that trains. Memory: what is sent together goes through one
// staging buffer, of the largest chunk of buffers; that of parameters is given back after use.
// Failure: a broadcast that fails leaves the values of this rank partly replaced.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "reducer/autograd/parameter.h"
#include "reducer/base/ref.h"
#include "reducer/tensor/tensor.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class Buffer final : public RefCounted {
 public:
  // `value` is defined and dense.
  Buffer(std::string name, Tensor value) : name_(std::move(name)), value_(std::move(value)) {}

  const std::string& name() const { return name_; }
  const Tensor& value() const { return value_; }
  void set_value(Tensor value) { value_ = std::move(value); }

 private:
  const std::string name_;
  Tensor value_;
};

// P15: one more copy of the model in the same process, each tensor on the device of the first one's
// or, where that is the host's, on another one of the host, with an index of its own as a rule:
// then its hooks run on another worker of the engine (which must have one for each index), beside
// those of other replicas. What the backward of a pass brings to a parameter is summed over the
// replicas, the first one first (the parameters that the reducer is created with), before it is
// scaled; the average lands in the first one, and the gradients of the others are undefined after
// the pass. Values of parameters, and with broadcast_buffers buffers, are copied from the first
// replica before the first forward of each sync window, and before forwards without gradients
// outside of one. A parameter has a value in both or in neither: in one alone is an error. Both
// lists go along with those of the first replica; null: this replica has none of it; no buffers at
// all is a list that may be empty. What the first one lists again, a replica lists again or leaves
// out. Ignoring goes by the names of the first one. Errors tell names, so let those of replicas
// differ.
struct Replica {
  std::vector<Ref<Parameter>> parameters;
  std::vector<Ref<Buffer>> buffers;
};

// Whether replicas may lie on these two.
bool can_hold_replicas(const Device& one, const Device& other);

// Sends bytes from one rank to all others, and returns when they are there.
class Broadcaster {
 public:
  virtual ~Broadcaster() = default;
  // It begins behind what was submitted to the device's current stream.
  virtual Status broadcast(Device& device, std::byte* data, std::uint64_t bytes, int root) = 0;
};

class ModuleState {
 public:
  // Parameters without a value are left out.
  ModuleState(const std::vector<Ref<Parameter>>& parameters, std::vector<Ref<Buffer>> buffers,
              std::uint64_t chunk_bytes);

  // What copy_to_replicas() fills. `parameters` are all that the replicas' lists go along with.
  Status add_replicas(const std::vector<Ref<Parameter>>& parameters,
                      const std::vector<Replica>& replicas);

  bool has_buffers() const;  // with elements
  // Where all that lies.
  std::vector<const Device*> devices() const;

  // Collective. Everything becomes what it is on rank `root`; `rank` is this one. Tensors travel in
  // chunks: in order, those of one device together, until they reach chunk_bytes; each begins at a
  // multiple of 64 bytes, and none is split.
  Status broadcast_all(Broadcaster& broadcaster, int rank, int root);
  Status broadcast_buffers(Broadcaster& broadcaster, int rank, int root);

  // In this process (P15). Values that are there in one replica alone are an error.
  Status copy_to_replicas(bool with_buffers);

 private:
  Status check_parameters() const;
  Status check_buffers() const;
  Status broadcast(Broadcaster& broadcaster, int rank, int root);
  Status send_chunk(Broadcaster& broadcaster, std::span<const Tensor> tensors, std::size_t bytes,
                    bool is_root, int root);

  std::vector<Ref<Parameter>> parameters_;
  std::vector<Device*> parameter_devices_;  // of their values at first
  std::vector<Ref<Buffer>> buffers_;
  std::vector<Shape> shapes_;  // of the buffers at first: what all ranks agree on
  std::vector<DType> dtypes_;
  std::vector<Device*> devices_;
  std::vector<std::pair<Ref<Parameter>, Ref<Parameter>>> parameter_copies_;  // from, to
  std::vector<std::pair<Ref<Buffer>, Ref<Buffer>>> buffer_copies_;
  const std::uint64_t chunk_bytes_;
  std::vector<Tensor> tensors_;  // what is being sent; empty in between, for its memory
  Ref<Storage> staging_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
