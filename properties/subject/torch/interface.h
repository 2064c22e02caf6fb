// What differs between the versions of PyTorch's C++ interface, from 1.13 to 2.15. The other files
// of this folder are written once for all of them. Where the interface differs, this file asks the
// headers which form they have; only what Python's wrapper does depends on the version's number.
//
// A version that has none of the known forms fails to compile here, and the first error names what
// is missing (ci/torch prints that line). Threads: any. Failure: it throws what libtorch throws.
#pragma once

#include <c10/util/Exception.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/version.h>

#include <c10d/ProcessGroupGloo.hpp>
#include <c10d/reducer.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lockstep::torch_subject {

// The first version in which Python's wrapper adds its identity function to every forward of
// static mode until a backward has queued delay_all_reduce(). Before, it added the function to the
// forwards up to the second synced one.
constexpr bool kSinkUntilQueued = TORCH_VERSION_MAJOR > 2 ||
                                  (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 1);

// ---- Nodes of the graph: shared pointers with a deleter up to 2.9, intrusive ones in 2.15 ----

using NodeHandle = decltype(torch::autograd::Edge::function);

template <class ProgramNode, class... Arguments>
NodeHandle make_node(Arguments&&... arguments) {
  if constexpr (std::is_same_v<NodeHandle, std::shared_ptr<torch::autograd::Node>>)
    // The argument's type finds deleteNode(), which versions with intrusive pointers do not have.
    return NodeHandle(new ProgramNode(std::forward<Arguments>(arguments)...),
                      [](auto* node) { deleteNode(node); });
  else
    return c10::make_intrusive<ProgramNode>(std::forward<Arguments>(arguments)...);
}

// ---- The process group that the reducer takes ----

// In 1.13 ProcessGroupGloo is a ProcessGroup. From 2.0 on it is a Backend, and the reducer takes a
// ProcessGroup around it, which users have from init_process_group(). `Group` is a parameter so
// that each version compiles its own branch alone.
template <class Gloo, class Group = c10d::ProcessGroup>
c10::intrusive_ptr<Group> process_group_of(const c10::intrusive_ptr<Gloo>& gloo,
                                           const c10::intrusive_ptr<c10d::Store>& store) {
  if constexpr (std::is_base_of_v<Group, Gloo>) {
    return gloo;
  } else {
    c10::intrusive_ptr<Group> group;
    if constexpr (std::is_constructible_v<Group, decltype(store), int, int>) {
      group = c10::make_intrusive<Group>(store, gloo->getRank(), gloo->getSize());
      group->setDefaultBackend(Group::BackendType::GLOO);
    } else {  // up to 2.4 the options say which backend is the default one
      group = c10::make_intrusive<Group>(store, gloo->getRank(), gloo->getSize(),
                                         c10::make_intrusive<typename Group::Options>("gloo"));
    }
    group->setBackend(c10::DeviceType::CPU, Group::BackendType::GLOO, gloo);
    return group;
  }
}

// ---- The reducer's constructor, which has four forms ----

struct ReducerArguments {
  std::vector<at::Tensor> parameters;
  std::vector<std::vector<std::size_t>> buckets;
  std::vector<std::size_t> limits;  // of each bucket, which no version uses
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  std::vector<bool> is_sparse;
  std::int64_t bucket_bytes = 0;
  bool is_dynamic = false;
  bool has_views = false;
  std::int64_t first_bucket_bytes = 0;
  // Older versions lack these, and must be given the default.
  bool skips_unused = false;
  std::vector<std::int64_t> limit_list;  // instead of the two limits; may be empty
  bool is_batched = false;
  bool is_lazy = false;
};

// True if the constructor of this version takes batched_grad_copy.
constexpr bool kHasBatched =
    std::is_constructible_v<c10d::Reducer, std::vector<at::Tensor>,
                            std::vector<std::vector<std::size_t>>,
                            c10::intrusive_ptr<c10d::ProcessGroup>, std::vector<bool>, std::int64_t,
                            bool, bool, std::unordered_map<std::size_t, std::string>, std::int64_t,
                            bool, bool, std::vector<std::int64_t>, bool, bool>;

template <class Reducer = c10d::Reducer>
std::shared_ptr<Reducer> make_reducer(ReducerArguments arguments) {
  ReducerArguments& a = arguments;
  using Buckets = decltype(a.buckets);
  using Limits = decltype(a.limits);
  using Group = decltype(a.group);
  using Parameters = decltype(a.parameters);
  using Flags = decltype(a.is_sparse);
  using Names = std::unordered_map<std::size_t, std::string>;
  using Bytes = std::int64_t;
  using ByteList = std::vector<std::int64_t>;
  constexpr bool kNoPythonReducer = false;
  if constexpr (std::is_constructible_v<Reducer, Parameters, Buckets, Limits, Group, Flags, Bytes,
                                        bool, bool, Names, Bytes>) {  // 1.13 to 2.4
    return std::make_shared<Reducer>(std::move(a.parameters), std::move(a.buckets),
                                     std::move(a.limits), a.group, std::move(a.is_sparse),
                                     a.bucket_bytes, a.is_dynamic, a.has_views, Names(),
                                     a.first_bucket_bytes);
  } else if constexpr (std::is_constructible_v<Reducer, Parameters, Buckets, Group, Flags, Bytes,
                                               bool, bool, Names, Bytes>) {  // between them
    return std::make_shared<Reducer>(std::move(a.parameters), std::move(a.buckets), a.group,
                                     std::move(a.is_sparse), a.bucket_bytes, a.is_dynamic,
                                     a.has_views, Names(), a.first_bucket_bytes);
  } else if constexpr (std::is_constructible_v<Reducer, Parameters, Buckets, Group, Flags, Bytes,
                                               bool, bool, Names, Bytes, bool, bool>) {  // 2.9
    return std::make_shared<Reducer>(std::move(a.parameters), std::move(a.buckets), a.group,
                                     std::move(a.is_sparse), a.bucket_bytes, a.is_dynamic,
                                     a.has_views, Names(), a.first_bucket_bytes, a.skips_unused,
                                     kNoPythonReducer);
  } else {
    static_assert(std::is_constructible_v<Reducer, Parameters, Buckets, Group, Flags, Bytes, bool,
                                          bool, Names, Bytes, bool, bool, ByteList, bool, bool>,
                  "c10d::Reducer has no constructor of a form that this program knows");
    return std::make_shared<Reducer>(
        std::move(a.parameters), std::move(a.buckets), a.group, std::move(a.is_sparse),
        a.bucket_bytes, a.is_dynamic, a.has_views, Names(), a.first_bucket_bytes, a.skips_unused,
        kNoPythonReducer, std::move(a.limit_list), a.is_batched, a.is_lazy);
  }
}

// ---- Passes that the user ends by hand, from 2.15 on ----

template <class Reducer>
concept EndsByHand = requires(Reducer& reducer) {
  reducer.finalize_backward_manual();
};

// No case for an older version has such passes (torch_capabilities()).
template <class Reducer = c10d::Reducer>
void require_manual_finalization(Reducer& reducer) {
  if constexpr (EndsByHand<Reducer>)
    reducer.set_manual_finalization_required(true);
  else
    TORCH_CHECK(false, "this version has no manual finalization");
}

template <class Reducer = c10d::Reducer>
bool should_finalize_after_backward(const Reducer& reducer) {
  if constexpr (EndsByHand<Reducer>)
    return reducer.should_finalize_after_backward();
  else
    return false;
}

template <class Reducer = c10d::Reducer>
void finalize_by_hand(Reducer& reducer) {
  if constexpr (EndsByHand<Reducer>) reducer.finalize_backward_manual();
}

// ---- Another process group for the same reducer, from 2.4 on ----

template <class Reducer>
concept UpdatesGroup = requires(Reducer& reducer, c10::intrusive_ptr<c10d::ProcessGroup> group) {
  reducer.update_process_group(group);
};

// Calls the two functions that DistributedDataParallel._update_process_group() calls. No case for
// an older version asks for it (torch_capabilities()).
template <class Reducer = c10d::Reducer>
void update_process_group(Reducer& reducer, const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  if constexpr (UpdatesGroup<Reducer>) {
    reducer.reset_state();
    reducer.update_process_group(group);
  } else {
    TORCH_CHECK(false, "this version has no update_process_group()");
  }
}

// ---- Warnings: the handler is given a Warning from 2.0 on, and its parts before ----

#if TORCH_VERSION_MAJOR == 1
namespace warnings = c10::Warning;
#else
namespace warnings = c10::WarningUtils;
#endif

template <class... Arguments>
class SilenceOf final : public c10::WarningHandler {
 public:
  void process(Arguments...) override {}
};
template <class... Arguments>
SilenceOf<Arguments...> silence_of(void (c10::WarningHandler::*)(Arguments...));

using Silence = decltype(silence_of(&c10::WarningHandler::process));

}  // namespace lockstep::torch_subject
