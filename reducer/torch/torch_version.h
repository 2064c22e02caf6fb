// What differs between the versions of PyTorch that the extension is built for, 1.13 to 2.15. The
// other files of this folder are written once. Where the interface differs, this file asks the
// headers which form they have.
//
// Threads: any. Failure: a version that has none of the known forms does not compile.
#pragma once

#include <c10/util/flat_hash_map.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/version.h>

#include <cstring>
#include <memory>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <type_traits>
#include <typeinfo>
#include <utility>

namespace lockstep::torch_adapter {

// Nodes of the graph: shared pointers with a deleter of their own up to 2.9, intrusive ones later.
using NodeHandle = decltype(::torch::autograd::Edge::function);

template <class GraphNode, class... Arguments>
NodeHandle make_node(Arguments&&... arguments) {
  if constexpr (std::is_same_v<NodeHandle, std::shared_ptr<::torch::autograd::Node>>)
    // The argument's type finds deleteNode(), which versions with intrusive pointers do not have.
    return NodeHandle(new GraphNode(std::forward<Arguments>(arguments)...),
                      [](auto* node) { deleteNode(node); });
  else
    return c10::make_intrusive<GraphNode>(std::forward<Arguments>(arguments)...);
}

// Whether the node is a torch.autograd.Function in Python, which may run a backward of its own.
// Wheels export no type information of that class, so its name is compared.
inline bool is_python_function(const ::torch::autograd::Node& node) {
  return std::strcmp(typeid(node).name(), "N5torch8autograd6PyNodeE") == 0;
}

// The bucket that a communication hook gets: with one more argument from 2.0 on, for sparse ones.
using Sizes = std::vector<std::size_t>;
template <class Bucket = c10d::GradBucket>
Bucket make_grad_bucket(std::size_t index, std::size_t count, const at::Tensor& buffer,
                        const Sizes& offsets, const Sizes& lengths,
                        const std::vector<c10::IntArrayRef>& sizes,
                        const std::vector<at::Tensor>& parameters) {
  if constexpr (std::is_constructible_v<Bucket, std::size_t, std::size_t, at::Tensor, Sizes, Sizes,
                                        std::vector<c10::IntArrayRef>, std::vector<at::Tensor>>)
    return Bucket(index, count, buffer, offsets, lengths, sizes, parameters);
  else
    return Bucket(index, count, buffer, offsets, lengths, sizes, parameters, {});
}

// Sets and maps of nodes that keep their memory when they are cleared.
using NodeSet = ska::flat_hash_set<const ::torch::autograd::Node*>;
template <class Value>
using MapOfNodes = ska::flat_hash_map<const ::torch::autograd::Node*, Value>;

}  // namespace lockstep::torch_adapter
