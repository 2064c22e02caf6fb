// Uses the installed library as its users do: its headers by the names that they have in the
// sources, and its code. Two ranks, as threads, meet in a store, connect over TCP, and train a step
// of a model with two parameters; each then holds the mean of both gradients.
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "reducer/comm/gloo/gloo_process_group.h"
#include "reducer/comm/store.h"
#include "reducer/data_parallel.h"
#include "reducer/device/host/host_device.h"

namespace {

using namespace lockstep;  // NOLINT

constexpr int kRanks = 2;

// y = w * x + b, with the error's derivative as the gradient of y: w gets x times it, b gets it.
class Line final : public Node {
 public:
  Line(Engine& engine, Edge weight, Edge bias, float x)
      : Node(engine.next_sequence(), 1, 0), x_(x) {
    edges_ = {std::move(weight), std::move(bias)};
  }
  Status apply(std::span<const Tensor> incoming, std::span<Tensor> outgoing,
               const BackwardContext&) override {
    Result<Tensor> of_weight =
        Tensor::empty(incoming[0].device(), DType::kFloat32, incoming[0].shape());
    if (!of_weight) return of_weight.error();
    float derivative = 0;
    std::memcpy(&derivative, incoming[0].data(), sizeof derivative);
    derivative *= x_;
    std::memcpy(of_weight->data(), &derivative, sizeof derivative);
    outgoing[0] = *of_weight;
    outgoing[1] = incoming[0];
    return {};
  }

 private:
  float x_;
};

float value_of(const Ref<Parameter>& parameter) {
  float value = 0;
  if (parameter->grad().defined()) std::memcpy(&value, parameter->grad().data(), sizeof value);
  return value;
}

// What this rank has to say; empty if all is well.
std::string train(int rank, const std::shared_ptr<Store>& store) {
  GlooOptions limits;
  limits.timeout = std::chrono::seconds(20);
  auto group = GlooProcessGroup::connect(store, rank, kRanks, limits);
  if (!group) return group.error().to_string();

  HostDevice device;
  Engine engine(0);
  const Shape one = Shape::row_major({1});
  const auto weight =
      make_ref<Parameter>("weight", device, DType::kFloat32, one, true, engine.next_sequence());
  const auto bias =
      make_ref<Parameter>("bias", device, DType::kFloat32, one, true, engine.next_sequence());
  const Membership membership{std::move(*group), store};
  auto parallel = DataParallel::create({weight, bias}, engine, ReducerOptions(), membership);
  if (!parallel) return parallel.error().to_string();

  for (int step = 1; step <= 3; ++step) {
    weight->undefine_grad();
    bias->undefine_grad();
    const float x = rank == 0 ? 2.0f : 6.0f;
    const auto module = [&](std::vector<Edge>& outputs) {
      outputs.push_back({make_ref<Line>(engine, Edge{weight, 0}, Edge{bias, 0}, x), 0});
      return Status();
    };
    std::vector<Edge> outputs;
    if (Status status = (*parallel)->forward(module, outputs); !status.ok())
      return status.to_string();
    Result<Tensor> gradient = Tensor::empty(device, DType::kFloat32, one);
    if (!gradient) return gradient.error().to_string();
    const float derivative = static_cast<float>(rank + step);
    std::memcpy(gradient->data(), &derivative, sizeof derivative);
    const std::vector<Tensor> gradients = {*gradient};
    if (Status status = engine.backward(outputs, gradients, false); !status.ok())
      return status.to_string();

    // 2 * step on rank 0, 6 * (step + 1) on rank 1; step, and step + 1.
    const float of_weight =
        (2.0f * static_cast<float>(step) + 6.0f * static_cast<float>(step + 1)) / 2;
    const float of_bias = static_cast<float>(step) + 0.5f;
    if (value_of(weight) != of_weight || value_of(bias) != of_bias)
      return "step " + std::to_string(step) + ": gradients " + std::to_string(value_of(weight)) +
             " and " + std::to_string(value_of(bias)) + ", not " + std::to_string(of_weight) +
             " and " + std::to_string(of_bias);
  }
  return {};
}

}  // namespace

int main() {
  auto store = std::make_shared<HashStore>();
  std::string complaints[kRanks];
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank)
    ranks.emplace_back([&, rank] { complaints[rank] = train(rank, store); });
  for (std::thread& rank : ranks) rank.join();
  int failed = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    if (complaints[rank].empty()) continue;
    std::cerr << "rank " << rank << ": " << complaints[rank] << "\n";
    failed = 1;
  }
  if (failed == 0) std::cout << "two ranks trained: the package works\n";
  return failed;
}
