// The module for one PyTorch (torch_side.h).
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <c10d/FileStore.hpp>
#include <c10d/logger.hpp>
#include <chrono>
#include <limits>
#include <utility>
#include <vector>

#include "benchmarks/torch_side.h"
#include "properties/subject/torch/interface.h"

namespace lockstep::benchmarks {
namespace {

// Our own nodes have the same names.
using TorchNode = torch::autograd::Node;
using torch::autograd::variable_list;
using torch_subject::make_node;
using torch_subject::NodeHandle;

constexpr std::chrono::seconds kTimeout{120};

template <class Call>
Status caught(Call call) {
  try {
    call();
    return {};
  } catch (const c10::Error& error) {
    return Status(Code::kTransport, error.what_without_backtrace());
  } catch (const std::exception& error) {
    return Status(Code::kTransport, error.what());
  }
}

using Accumulators = std::vector<NodeHandle>;

struct Members {
  explicit Members(const Workload& workload) {
    for (const std::int64_t elements : workload.parameters) {
      // Nobody reads the values of the parameters, so they use no memory.
      at::Tensor parameter = at::empty({elements}, at::kFloat);
      parameter.set_requires_grad(true);
      accumulators.push_back(torch::autograd::impl::grad_accumulator(parameter));
      parameters.push_back(std::move(parameter));
    }
  }
  std::vector<at::Tensor> parameters;
  Accumulators accumulators;
};

// Does what the engine does after an accumulator, without the engine. This is the cheapest way to
// call a hook.
class HookNode final : public TorchNode {
 public:
  explicit HookNode(const Accumulators& accumulators) : accumulators_(accumulators) {
    add_input_metadata(at::empty({1}, at::kFloat));
  }
  variable_list apply(variable_list&&) override {
    for (auto each = accumulators_.rbegin(); each != accumulators_.rend(); ++each)
      for (const auto& hook : (*each)->post_hooks()) (*hook)({}, nothing_);
    return {};
  }

 private:
  const Accumulators& accumulators_;
  const variable_list nothing_ = variable_list(1);
};

// Sends nothing to an accumulator, and its own input to the next node of the chain.
class ChainNode final : public TorchNode {
 public:
  ChainNode(NodeHandle accumulator, NodeHandle next) {
    add_input_metadata(at::empty({1}, at::kFloat));
    add_next_edge({std::move(accumulator), 0});
    if (next) add_next_edge({std::move(next), 0});
  }
  variable_list apply(variable_list&& incoming) override {
    variable_list out(num_outputs());
    if (out.size() > 1) out[1] = std::move(incoming[0]);
    return out;
  }
};

NodeHandle make_chain(const Accumulators& accumulators) {
  NodeHandle root;
  for (const NodeHandle& accumulator : accumulators)
    root = make_node<ChainNode>(accumulator, std::move(root));
  return root;
}

Status run_backward(const NodeHandle& root, const at::Tensor& gradient) {
  return caught([&] {
    torch::autograd::Engine::get_default_engine().execute({{root, 0}}, {gradient}, false, false,
                                                          true);
  });
}

c10::intrusive_ptr<c10d::ProcessGroup> connect(const Place& place, const std::string& name) {
  auto options = c10d::ProcessGroupGloo::Options::create(kTimeout);
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  options->threads = 2;
  const c10::intrusive_ptr<c10d::Store> store =
      c10::make_intrusive<c10d::FileStore>(place.directory + "/" + name, place.ranks);
  return torch_subject::process_group_of(
      c10::make_intrusive<c10d::ProcessGroupGloo>(store, place.rank, place.ranks, options), store);
}

// Creates it as the Python class does (torch/nn/parallel/distributed.py).
std::shared_ptr<c10d::Reducer> make_reducer(const std::vector<at::Tensor>& parameters,
                                            const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                            TorchOptions options) {
  const std::vector<std::size_t> no_limit = {std::numeric_limits<std::size_t>::max() / 2};
  auto [buckets, limits] =
      c10d::compute_bucket_assignment_by_size(parameters, no_limit, {}, {}, {});
  std::reverse(buckets.begin(), buckets.end());
  std::reverse(limits.begin(), limits.end());
  torch_subject::ReducerArguments arguments;
  arguments.parameters = parameters;
  arguments.buckets = std::move(buckets);
  arguments.limits = std::move(limits);
  arguments.group = group;
  arguments.bucket_bytes = c10d::kDefaultBucketBytesCap;
  arguments.has_views = options.views;
  arguments.first_bucket_bytes = c10d::kDefaultFirstBucketBytes;
  arguments.is_batched = options.batched;
  return torch_subject::make_reducer(std::move(arguments));
}

void prepare_torch() {
  at::set_num_threads(1);
  at::set_num_interop_threads(1);
}

class TorchReduced final : public TorchReducing {
 public:
  TorchReduced(const Place& place, const std::string& name, const Workload& workload,
               TorchOptions options)
      : rank_(place.rank), members_(workload) {
    std::int64_t first = 0;
    for (at::Tensor& parameter : members_.parameters) {
      parameter.mutable_grad() = at::empty({parameter.numel()}, at::kFloat);
      firsts_.push_back(first);
      first += parameter.numel();
    }
    group_ = connect(place, name);
    reducer_ = make_reducer(members_.parameters, group_, options);
    logger_ = std::make_shared<c10d::Logger>(reducer_);
    reducer_->set_logger(logger_);
  }

  void set_backward(Backward backward) override { backward_ = backward; }

  Status prepare(const Values& values) override {
    return caught([&] {
      for (std::size_t i = 0; i < firsts_.size(); ++i) {
        const at::Tensor& gradient = members_.parameters[i].grad();
        values.fill(rank_, firsts_[i], gradient.numel(), gradient.data_ptr<float>());
      }
      reducer_->prepare_for_forward();
      reducer_->rebuild_buckets();
      reducer_->prepare_for_backward({});
      root_ = backward_ == Backward::kChain ? make_chain(members_.accumulators)
                                            : make_node<HookNode>(members_.accumulators);
    });
  }

  Status step() override { return run_backward(root_, gradient_); }

  std::uint64_t wrong(const Values& values) const override {
    std::uint64_t wrong = 0;
    for (std::size_t i = 0; i < firsts_.size(); ++i) {
      const at::Tensor& gradient = members_.parameters[i].grad();
      wrong += values.not_average(firsts_[i], gradient.numel(), gradient.data_ptr<float>());
    }
    return wrong;
  }

  float* first_result() override { return members_.parameters.front().grad().data_ptr<float>(); }

 private:
  const int rank_;
  Members members_;
  std::vector<std::int64_t> firsts_;  // the first element in the model, by parameter
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::shared_ptr<c10d::Reducer> reducer_;
  std::shared_ptr<c10d::Logger> logger_;  // destroyed first
  Backward backward_ = Backward::kHooks;
  const at::Tensor gradient_ = at::ones({1}, at::kFloat);
  NodeHandle root_;
};

class TorchBareChain final : public Contender {
 public:
  explicit TorchBareChain(const Workload& workload) : members_(workload) {}
  Status prepare(const Values&) override {
    return caught([&] { root_ = make_chain(members_.accumulators); });
  }
  Status step() override { return run_backward(root_, gradient_); }
  std::uint64_t wrong(const Values&) const override { return 0; }
  float* first_result() override { return &nothing_; }

 private:
  Members members_;
  const at::Tensor gradient_ = at::ones({1}, at::kFloat);
  NodeHandle root_;
  float nothing_ = 0;
};

Result<std::unique_ptr<TorchReducing>> create(const Place& place, const std::string& name,
                                              const Workload& workload, TorchOptions options) {
  std::unique_ptr<TorchReducing> made;
  const Status status =
      caught([&] { made = std::make_unique<TorchReduced>(place, name, workload, options); });
  if (!status.ok()) return failed(status);
  return made;
}

std::unique_ptr<Contender> bare_chain(const Workload& workload) {
  return std::make_unique<TorchBareChain>(workload);
}

}  // namespace
}  // namespace lockstep::benchmarks

extern "C" const lockstep::benchmarks::TorchSide* lockstep_torch_side() {
  using namespace lockstep::benchmarks;  // NOLINT: its own namespace
  static const TorchSide side{TORCH_VERSION, lockstep::torch_subject::kHasBatched, prepare_torch,
                              create, bare_chain};
  return &side;
}
