#include "reducer/module_state.h"

#include <algorithm>

#include "reducer/base/check.h"
#include "reducer/base/sizes.h"
#include "reducer/bucket/layout.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

std::int64_t bytes_of(const Tensor& tensor) {
  return multiply_sizes(tensor.elements(), static_cast<std::int64_t>(size_of(tensor.dtype())));
}

std::int64_t aligned(std::int64_t bytes) {
  return round_up_size(bytes, static_cast<std::int64_t>(kMemberAlignmentBytes));
}

bool can_copy(const Tensor& from, const Tensor& to) {
  return from.defined() && to.defined() && from.dtype() == to.dtype() &&
         from.shape().same_sizes(to.shape());
}

Status cannot_copy(const std::string& from, const std::string& to) {
  return Status(Code::kInvalidArgument,
                to + ", another replica's " + from +
                    ", has no value, or one of another dtype or shape than that, or " + from +
                    " itself has none");
}

// Copies a parameter's value, or a buffer. Both lie on one device, or on host devices, whose work
// is done when its call returns.
template <class Kind>
Status copy_value(const Kind& from, const Kind& to) {
  if (!can_copy(from.value(), to.value())) return cannot_copy(from.name(), to.name());
  Device& device = to.value().device();
  device.copy(device.current_stream(), from.value(), to.value());
  return {};
}

}  // namespace

bool can_hold_replicas(const Device& one, const Device& other) {
  return &one == &other || (one.is_host() && other.is_host());
}

ModuleState::ModuleState(const std::vector<Ref<Parameter>>& parameters,
                         std::vector<Ref<Buffer>> buffers, std::uint64_t chunk_bytes)
    : buffers_(std::move(buffers)), chunk_bytes_(chunk_bytes) {
  for (const Ref<Parameter>& parameter : parameters) {
    if (!parameter->value().defined()) continue;
    parameters_.push_back(parameter);
    parameter_devices_.push_back(&parameter->value().device());
  }
  for (const Ref<Buffer>& buffer : buffers_) {
    LOCKSTEP_CHECK(buffer->value().defined());  // ReplicaSet::build() refuses others.
    shapes_.push_back(buffer->value().shape());
    dtypes_.push_back(buffer->value().dtype());
    devices_.push_back(&buffer->value().device());
  }
}

Status ModuleState::add_replicas(const std::vector<Ref<Parameter>>& parameters,
                                 const std::vector<Replica>& replicas) {
  std::vector<Ref<Buffer>> known = buffers_;
  for (const Replica& replica : replicas) {
    LOCKSTEP_CHECK_EQ(replica.parameters.size(), parameters.size());
    LOCKSTEP_CHECK_LE(replica.buffers.size(), buffers_.size());
    for (std::size_t i = 0; i < parameters.size(); ++i)
      if (replica.parameters[i])
        parameter_copies_.emplace_back(parameters[i], replica.parameters[i]);
    for (std::size_t i = 0; i < replica.buffers.size(); ++i) {
      const Ref<Buffer>& buffer = replica.buffers[i];
      if (!buffer) continue;
      if (std::find(known.begin(), known.end(), buffer) != known.end())
        return Status(Code::kInvalidArgument,
                      "buffer " + buffer->name() + " of a replica is elsewhere in the model, too");
      if (!can_copy(buffers_[i]->value(), buffer->value()))
        return cannot_copy(buffers_[i]->name(), buffer->name());
      if (!can_hold_replicas(buffers_[i]->value().device(), buffer->value().device()))
        return Status(Code::kInvalidArgument,
                      "buffer " + buffer->name() +
                          " of a replica is on another GPU than that of the first one: give each "
                          "card a process of its own");
      known.push_back(buffer);
      buffer_copies_.emplace_back(buffers_[i], buffer);
    }
  }
  return {};
}

Status ModuleState::copy_to_replicas(bool with_buffers) {
  for (const auto& [from, to] : parameter_copies_) {
    LOCKSTEP_CHECK(from.get() != to.get());
    // The values are held elsewhere.
    if (!from->value().defined() && !to->value().defined()) continue;
    LOCKSTEP_RETURN_IF_ERROR(copy_value(*from, *to));
  }
  if (!with_buffers) return {};
  for (const auto& [from, to] : buffer_copies_) LOCKSTEP_RETURN_IF_ERROR(copy_value(*from, *to));
  return {};
}

bool ModuleState::has_buffers() const {
  return std::any_of(shapes_.begin(), shapes_.end(),
                     [](const Shape& shape) { return shape.elements() != 0; });
}

std::vector<const Device*> ModuleState::devices() const {
  std::vector<const Device*> all(devices_.begin(), devices_.end());
  all.insert(all.end(), parameter_devices_.begin(), parameter_devices_.end());
  return all;
}

Status ModuleState::check_parameters() const {
  LOCKSTEP_CHECK_EQ(parameters_.size(), parameter_devices_.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& value = parameters_[i]->value();
    if (!value.defined() || &value.device() != parameter_devices_[i])
      return Status(Code::kInvalidArgument,
                    "parameter " + parameters_[i]->name() +
                        " has no value any more, or one on another device than when the reducer "
                        "was made");
  }
  return {};
}

Status ModuleState::check_buffers() const {
  LOCKSTEP_CHECK_EQ(buffers_.size(), shapes_.size());
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const Tensor& value = buffers_[i]->value();
    const bool fits = value.defined() && value.dtype() == dtypes_[i] &&
                      &value.device() == devices_[i] && value.shape().same_sizes(shapes_[i]) &&
                      value.shape().same_strides(shapes_[i]);
    if (!fits)
      return Status(Code::kInvalidArgument,
                    "buffer " + buffers_[i]->name() +
                        " has another dtype, shape or device than when the reducer was made");
  }
  return {};
}

Status ModuleState::broadcast_all(Broadcaster& broadcaster, int rank, int root) {
  LOCKSTEP_CHECK_GE(rank, 0);
  LOCKSTEP_RETURN_IF_ERROR(check_parameters());
  LOCKSTEP_RETURN_IF_ERROR(check_buffers());
  tensors_.clear();  // A call that ended by an exception may have left some.
  for (const Ref<Parameter>& parameter : parameters_) tensors_.push_back(parameter->value());
  for (const Ref<Buffer>& buffer : buffers_) tensors_.push_back(buffer->value());
  Status status = broadcast(broadcaster, rank, root);
  if (status.ok())
    // After a failure the staging buffer may be in use until the group is stopped.
    staging_ = Ref<Storage>();
  return status;
}

Status ModuleState::broadcast_buffers(Broadcaster& broadcaster, int rank, int root) {
  LOCKSTEP_RETURN_IF_ERROR(check_buffers());
  tensors_.clear();
  for (const Ref<Buffer>& buffer : buffers_) tensors_.push_back(buffer->value());
  return broadcast(broadcaster, rank, root);
}

Status ModuleState::broadcast(Broadcaster& broadcaster, int rank, int root) {
  LOCKSTEP_CHECK_GE(root, 0);
  std::erase_if(tensors_, [](const Tensor& tensor) { return tensor.elements() == 0; });
  Status status;
  for (std::size_t first = 0; first < tensors_.size() && status.ok();) {
    std::size_t end = first;
    std::int64_t bytes = 0;
    while (end < tensors_.size() && &tensors_[end].device() == &tensors_[first].device() &&
           (end == first || static_cast<std::uint64_t>(bytes) < chunk_bytes_)) {
      bytes = add_sizes(aligned(bytes), bytes_of(tensors_[end]));
      ++end;
    }
    LOCKSTEP_CHECK_LT(first, end);  // Each chunk has a tensor, so the loop ends.
    // Tensors may share memory, so together they may have more bytes than any memory.
    status = bytes == kTooLarge ? out_of_memory()
                                : send_chunk(broadcaster, {&tensors_[first], end - first},
                                             static_cast<std::size_t>(bytes), rank == root, root);
    first = end;
  }
  tensors_.clear();
  return status;
}

Status ModuleState::send_chunk(Broadcaster& broadcaster, std::span<const Tensor> tensors,
                               std::size_t bytes, bool is_root, int root) {
  LOCKSTEP_CHECK(!tensors.empty());
  LOCKSTEP_CHECK(bytes > 0);
  if (tensors.size() == 1)
    return broadcaster.broadcast(tensors[0].device(), tensors[0].data(), bytes, root);
  Device& device = tensors[0].device();
  if (!staging_ || staging_->bytes() < bytes || &staging_->device() != &device) {
    Result<Ref<Storage>> storage = device.allocate(bytes);
    if (!storage) return storage.error();
    staging_ = std::move(*storage);
  }
  const Stream stream = device.current_stream();
  const auto each_place = [&](auto copy) {
    std::int64_t offset = 0;
    for (const Tensor& tensor : tensors) {
      offset = aligned(offset);
      const auto size = static_cast<std::int64_t>(size_of(tensor.dtype()));
      copy(tensor, Tensor(staging_, offset / size, tensor.dtype(), tensor.shape()));
      offset += bytes_of(tensor);
    }
    LOCKSTEP_CHECK_EQ(static_cast<std::size_t>(offset), bytes);
  };
  if (is_root) {
    // The padding between tensors is defined, too.
    device.fill_zero(stream, staging_->data(), bytes);
    each_place(
        [&](const Tensor& tensor, const Tensor& place) { device.copy(stream, tensor, place); });
  }
  LOCKSTEP_RETURN_IF_ERROR(broadcaster.broadcast(device, staging_->data(), bytes, root));
  if (!is_root)
    each_place(
        [&](const Tensor& tensor, const Tensor& place) { device.copy(stream, place, tensor); });
  return {};
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
