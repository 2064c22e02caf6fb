#include "properties/compare/step_model.h"

#include <string>
#include <utility>

#include "reducer/device/device.h"

namespace lockstep::properties {
namespace {

platform::Deadline soon() { return platform::Deadline::in(std::chrono::seconds(60)); }

}  // namespace

class StepModel::Root final : public Node {
 public:
  explicit Root(StepModel& model)
      : Node(model.engine_.next_sequence(), 1, model.device_.index()), model_(model) {
    for (const auto& parameter : model.parameters_) edges_.push_back({parameter, 0});
  }
  Status apply(std::span<const Tensor>, std::span<Tensor> out, const BackwardContext&) override {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = model_.arriving_[i];
    return {};
  }

 private:
  StepModel& model_;
};

Result<std::unique_ptr<StepModel>> StepModel::create(Device& device, Membership membership,
                                                     const std::vector<std::int64_t>& parameters,
                                                     const std::vector<std::byte>& gradients) {
  std::unique_ptr<StepModel> made(new StepModel(device, gradients));
  for (const std::int64_t elements : parameters) {
    const Shape shape = Shape::row_major({elements});
    made->parameters_.push_back(make_ref<Parameter>("p" + std::to_string(made->parameters_.size()),
                                                    device, DType::kFloat32, shape, true,
                                                    made->engine_.next_sequence()));
    Result<Tensor> arriving = Tensor::empty(device, DType::kFloat32, shape);
    if (!arriving) return failed(arriving.error());
    made->arriving_.push_back(std::move(*arriving));
  }
  Result<Tensor> root = Tensor::empty(device, DType::kFloat32, Shape::row_major({1}));
  if (!root) return failed(root.error());
  device.fill_zero(device.current_stream(), root->data(), sizeof(float));
  made->root_gradient_.push_back(std::move(*root));
  auto parallel = DataParallel::create(made->parameters_, made->engine_, {}, std::move(membership));
  if (!parallel) return failed(parallel.error());
  made->parallel_ = std::move(*parallel);
  return made;
}

Status StepModel::prepare() {
  for (const auto& parameter : parameters_) parameter->undefine_grad();
  // The averages of the pass before may lie in the same memory.
  const std::byte* from = gradients_.data();
  for (const Tensor& arriving : arriving_) {
    const std::size_t bytes = static_cast<std::size_t>(arriving.elements()) * sizeof(float);
    LOCKSTEP_RETURN_IF_ERROR(write(device_, {from, bytes}, arriving.data(), soon()));
    from += bytes;
  }
  outputs_.clear();
  return parallel_->forward(
      [this](std::vector<Edge>& edges) {
        edges.push_back({make_ref<Root>(*this), 0});
        return Status();
      },
      outputs_);
}

Status StepModel::step() {
  LOCKSTEP_RETURN_IF_ERROR(engine_.backward(outputs_, root_gradient_, false));
  return device_.synchronize(device_.record(device_.current_stream()), soon());
}

Status StepModel::read_averages(std::span<std::byte> into) const {
  std::size_t at = 0;
  for (const auto& parameter : parameters_) {
    const Tensor gradient = parameter->grad();
    if (!gradient.defined()) return Status(Code::kInternal, parameter->name() + " has no gradient");
    const std::size_t bytes = static_cast<std::size_t>(gradient.elements()) * sizeof(float);
    LOCKSTEP_RETURN_IF_ERROR(read(device_, gradient.data(), into.subspan(at, bytes), soon()));
    at += bytes;
  }
  return {};
}

}  // namespace lockstep::properties
