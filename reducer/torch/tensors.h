// Tensors of PyTorch as tensors of Lockstep, and the other way round. Both name the same memory.
//
// Threads: any. All tensors lie on the one host device of the process, which is never destroyed, as
// gradients that users keep may lie on it.
// Ownership: a Lockstep tensor in PyTorch's memory does not keep that memory; a PyTorch tensor in
// Lockstep's memory does.
// Failure: refuse() (errors.h) for what Lockstep has no form of.
#pragma once

#include <ATen/ATen.h>

#include <optional>

#include "reducer/device/host/host_device.h"
#include "reducer/tensor/tensor.h"

namespace lockstep::torch_adapter {

HostDevice& host_device();

// The dtype of gradients of this type; none if Lockstep cannot reduce them.
std::optional<DType> gradient_dtype(at::ScalarType type);

// Sizes and strides; none if there are more dimensions than Lockstep has.
std::optional<Shape> shape_of(const at::Tensor& tensor);

// Whether the tensor reaches every byte of a contiguous range once, so that it can be sent as such.
bool is_dense(const at::Tensor& tensor);

// The memory of a dense tensor of any dtype, as bytes.
Tensor bytes_of(const at::Tensor& tensor);

// A tensor of PyTorch with the memory of `tensor`, which it shares.
at::Tensor as_torch(const Tensor& tensor, const at::TensorOptions& options);
// The storage whose memory the dense tensor has from as_torch(), through views, too; null for none,
// and where there are no elements.
Ref<Storage> storage_of(const at::Tensor& tensor);

// The same for a sparse one, of a parameter with these sizes.
at::Tensor as_torch_sparse(const Tensor& tensor, at::IntArrayRef sizes,
                           const at::TensorOptions& options);

}  // namespace lockstep::torch_adapter
