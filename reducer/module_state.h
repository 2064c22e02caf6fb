// ModuleState is what the ranks of a data-parallel model share besides gradients: the values of
// parameters, and buffers, such as the running means of a normalization (contract S3).
//
// Buffer is a tensor of the model that has no gradient. Between forwards its tensor may be replaced
// at any time by one of the same shape and dtype on the same device; every broadcast reads it anew.
// Threads: only the thread that trains.
// Memory: tensors that are sent together pass through one staging buffer, which is as large as the
// largest chunk of buffers. The staging buffer of parameters is released after use.
// Failure: a broadcast that fails leaves the values of this rank partly replaced.
#pragma once

#include <cstdint>
#include <optional>
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
  // `value` must be defined and dense.
  Buffer(std::string name, Tensor value) : name_(std::move(name)), value_(std::move(value)) {}

  const std::string& name() const { return name_; }
  const Tensor& value() const { return value_; }
  void set_value(Tensor value) { value_ = std::move(value); }

 private:
  const std::string name_;
  Tensor value_;
};

// Replica is one more copy of the model in the same process (P15). Each tensor lies on the device
// of the corresponding tensor of the first replica or, if that is a host device, on another host
// device. Such a device usually has an index of its own: its hooks then run on another worker of
// the engine, concurrently with those of other replicas, and the engine must have a worker for each
// index. The reducer sums the gradients of a pass over the replicas, beginning with the first one
// (the parameters that the reducer is created with), before it scales them. The average goes to the
// first replica, and the gradients of the others are undefined after the pass. Values of
// parameters, and with broadcast_buffers also buffers, are copied from the first replica before the
// first forward of each sync window, and before forwards without gradients outside of one. It is an
// error if a parameter has a value in one replica and none in another.
// Both lists correspond to those of the first replica, entry by entry. A null entry means that this
// replica does not have the tensor, and an empty list of buffers means that it has no buffers at
// all. Where the list of the first replica repeats a tensor, a replica repeats it or leaves it out.
// The list of ignored names refers to the first replica. Errors name tensors, so give the tensors
// of different replicas different names.
struct Replica {
  std::vector<Ref<Parameter>> parameters;
  std::vector<Ref<Buffer>> buffers;
};

// Whether one model may have replicas on these two devices.
bool can_hold_replicas(const Device& one, const Device& other);

// Sends bytes from one rank to all others, and returns when they have arrived.
class Broadcaster {
 public:
  virtual ~Broadcaster() = default;
  // The broadcast begins after the work that was submitted to the device's current stream.
  virtual Status broadcast(Device& device, std::byte* data, std::uint64_t bytes, int root) = 0;
};

class ModuleState {
 public:
  // Parameters without a value are left out.
  ModuleState(const std::vector<Ref<Parameter>>& parameters, std::vector<Ref<Buffer>> buffers,
              std::uint64_t chunk_bytes);

  // Registers the tensors that copy_to_replicas() writes. `parameters` are all parameters that the
  // lists of the replicas correspond to.
  Status add_replicas(const std::vector<Ref<Parameter>>& parameters,
                      const std::vector<Replica>& replicas);

  bool has_buffers() const;  // Whether a buffer has elements.
  // The devices on which parameters and buffers lie.
  std::vector<const Device*> devices() const;

  // A collective operation. Every tensor takes the value that it has on rank `root`; `rank` is this
  // rank. Tensors are sent in chunks: in order, those of one device together, until a chunk reaches
  // chunk_bytes. Each tensor begins at a multiple of 64 bytes, and none is split.
  Status broadcast_all(Broadcaster& broadcaster, int rank, int root);
  Status broadcast_buffers(Broadcaster& broadcaster, int rank, int root);

  // Copies within this process (P15). It is an error if a value exists in one replica alone.
  Status copy_to_replicas(bool with_buffers);

 private:
  Status check_parameters() const;
  Status check_buffers() const;
  Status broadcast(Broadcaster& broadcaster, int rank, int root);
  Status send_chunk(Broadcaster& broadcaster, std::span<const Tensor> tensors, std::size_t bytes,
                    bool is_root, int root);

  std::vector<Ref<Parameter>> parameters_;
  std::vector<Device*> parameter_devices_;  // The devices of their values at construction.
  std::vector<Ref<Buffer>> buffers_;
  // The shapes of the buffers at construction, on which all ranks agree.
  std::vector<Shape> shapes_;
  std::vector<DType> dtypes_;
  std::vector<Device*> devices_;
  // Pairs of source and destination.
  std::vector<std::pair<Ref<Parameter>, Ref<Parameter>>> parameter_copies_;
  std::vector<std::pair<Ref<Buffer>, Ref<Buffer>>> buffer_copies_;
  const std::uint64_t chunk_bytes_;
  // The tensors that are being sent. It is empty in between, and keeps its memory.
  std::vector<Tensor> tensors_;
  Ref<Storage> staging_;
};

// SyncedState is the state of a reducer's model, and how far the open sync window has shared it. A
// sync window begins with the first forward after a synced pass, and lasts until the next synced
// pass is complete (S3).
struct SyncedState {
  std::optional<ModuleState> module;  // Set at construction.
  bool is_window_open = false;        // True once the first forward of the window has run.
  // True once the other replicas have received buffers in this group (P15).
  bool is_copied = false;

  // All of it is to be shared anew.
  void start_over() { is_window_open = is_copied = false; }
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
