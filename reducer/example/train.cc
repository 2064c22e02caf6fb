// Trains a small model on several processes, each with its share of the batch, or on one process
// with the whole batch and without Lockstep. Both end with the same bits.
//
//   train RANK RANKS FOLDER    one of RANKS (2, 4 or 8) processes, with an empty folder in common
//   train                      alone
//
// It prints the loss before the first and after the last step, and every weight in hexadecimal.
//
// Why the bits are the same: in general they are not, because a sum of floats depends on its order,
// and each process adds up its own samples first. Here every operation is exact. Inputs are 1 or
// -1, targets are whole numbers, and the learning rate, the number of samples and the number of
// processes are powers of two, so that all numbers are multiples of a power of two. The columns of
// the inputs are orthogonal, so that a step halves the distance to the best weights, which adds one
// bit to them: kSteps steps leave everything well within the 24 bits of a float. An exact result
// does not depend on the order in which it was computed.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "reducer/comm/gloo/file_store.h"
#include "reducer/comm/gloo/gloo_process_group.h"
#include "reducer/data_parallel.h"
#include "reducer/device/host/host_device.h"

namespace {

using namespace lockstep;  // NOLINT

constexpr int kSamples = 8;
constexpr int kInputs = 7;
constexpr int kOutputs = 2;
constexpr int kSteps = 12;
constexpr float kRate = 0.5f;
constexpr float kBest[kOutputs][kInputs + 1] = {{3, -1, 4, 1, -5, 9, -2, 6},
                                                // The biases come last.
                                                {2, 7, -1, 8, 2, -8, 1, 8}};

// Returns an element of a sample's row of the Hadamard matrix of order 8. Column 0, which is all
// ones, belongs to the bias.
float sign(int sample, int column) {
  return __builtin_popcount(static_cast<unsigned>(sample & column)) % 2 == 0 ? 1 : -1;
}
float input(int sample, int i) { return sign(sample, i + 1); }

float target(int sample, int output) {
  float sum = kBest[output][kInputs];
  for (int i = 0; i < kInputs; ++i) sum += kBest[output][i] * input(sample, i);
  return sum;
}

float* floats(const Tensor& tensor) { return reinterpret_cast<float*>(tensor.data()); }

// Makes a tensor of zeros.
Tensor zeros(Device& device, const Shape& shape) {
  Result<Tensor> made = Tensor::empty(device, DType::kFloat32, shape);
  if (!made) std::abort();
  std::memset(made->data(), 0, static_cast<std::size_t>(made->elements()) * sizeof(float));
  return *made;
}

// Computes outputs = weight * inputs + bias, for the samples of one process.
class Linear final : public Node {
 public:
  Linear(Engine& engine, const Ref<Parameter>& weight, const Ref<Parameter>& bias,
         std::vector<int> samples)
      : Node(engine.next_sequence(), 1, 0), samples_(std::move(samples)) {
    edges_ = {{weight, 0}, {bias, 0}};
  }

  // Takes the derivatives of the loss with respect to the outputs, and passes on those with respect
  // to weight and bias.
  Status apply(std::span<const Tensor> incoming, std::span<Tensor> outgoing,
               const BackwardContext&) override {
    Device& device = incoming[0].device();
    outgoing[0] = zeros(device, Shape::row_major({kOutputs, kInputs}));
    outgoing[1] = zeros(device, Shape::row_major({kOutputs}));
    const float* by_output = floats(incoming[0]);
    for (const int sample : samples_) {
      for (int o = 0; o < kOutputs; ++o) {
        const float derivative = *by_output++;
        for (int i = 0; i < kInputs; ++i)
          floats(outgoing[0])[o * kInputs + i] += derivative * input(sample, i);
        floats(outgoing[1])[o] += derivative;
      }
    }
    return {};
  }

 private:
  const std::vector<int> samples_;
};

class Model {
 public:
  explicit Model(std::vector<int> samples) : samples_(std::move(samples)) {}

  std::vector<Ref<Parameter>> parameters() const { return {weight_, bias_}; }
  Engine& engine() { return engine_; }

  float error(int sample, int o) const {
    float sum = floats(bias_values_)[o];
    for (int i = 0; i < kInputs; ++i)
      sum += floats(weight_values_)[o * kInputs + i] * input(sample, i);
    return sum - target(sample, o);
  }

  // Returns the loss of the whole batch, whatever share this process has of it.
  float loss() const {
    float sum = 0;
    for (int sample = 0; sample < kSamples; ++sample)
      for (int o = 0; o < kOutputs; ++o) sum += error(sample, o) * error(sample, o);
    return sum / (2 * kSamples);
  }

  // Takes one step of gradient descent; `parallel` is null in a process that is alone.
  Status step(DataParallel* parallel) {
    weight_->undefine_grad();
    bias_->undefine_grad();
    const auto forward = [this](std::vector<Edge>& outputs) {
      outputs.push_back({make_ref<Linear>(engine_, weight_, bias_, samples_), 0});
      return Status();
    };
    std::vector<Edge> outputs;
    LOCKSTEP_RETURN_IF_ERROR(parallel ? parallel->forward(forward, outputs) : forward(outputs));
    const auto samples = static_cast<std::int64_t>(samples_.size());
    const Tensor by_output = zeros(device_, Shape::row_major({samples, kOutputs}));
    float* derivative = floats(by_output);
    for (const int sample : samples_)
      for (int o = 0; o < kOutputs; ++o)
        *derivative++ = error(sample, o) / static_cast<float>(samples);
    LOCKSTEP_RETURN_IF_ERROR(engine_.backward(outputs, std::span(&by_output, 1), false));
    descend(weight_values_, weight_->grad());
    descend(bias_values_, bias_->grad());
    return {};
  }

  void print_weights() const {
    for (const Tensor& values : {weight_values_, bias_values_})
      for (std::int64_t i = 0; i < values.elements(); ++i)
        std::printf("%a\n", static_cast<double>(floats(values)[i]));
  }

 private:
  static void descend(const Tensor& values, const Tensor& gradient) {
    for (std::int64_t i = 0; i < values.elements(); ++i)
      floats(values)[i] -= kRate * floats(gradient)[i];
  }
  Ref<Parameter> parameter(const char* name, const Shape& shape) {
    return make_ref<Parameter>(name, device_, DType::kFloat32, shape, true,
                               engine_.next_sequence());
  }

  const std::vector<int> samples_;
  HostDevice device_;
  Engine engine_{0};
  const Tensor weight_values_ = zeros(device_, Shape::row_major({kOutputs, kInputs}));
  const Tensor bias_values_ = zeros(device_, Shape::row_major({kOutputs}));
  const Ref<Parameter> weight_ = parameter("weight", weight_values_.shape());
  const Ref<Parameter> bias_ = parameter("bias", bias_values_.shape());
};

Status train(Model& model, DataParallel* parallel) {
  std::printf("loss %g\n", static_cast<double>(model.loss()));
  for (int step = 0; step < kSteps; ++step) LOCKSTEP_RETURN_IF_ERROR(model.step(parallel));
  std::printf("loss %g\n", static_cast<double>(model.loss()));
  model.print_weights();
  return {};
}

Status train_together(int rank, int ranks, const std::string& folder) {
  std::vector<int> samples;
  for (int sample = rank; sample < kSamples; sample += ranks) samples.push_back(sample);
  Model model(std::move(samples));
  const auto store = std::make_shared<FileStore>(folder);
  auto group = GlooProcessGroup::connect(std::make_shared<PrefixStore>("group", store), rank, ranks,
                                         GlooOptions());
  if (!group) return group.error();
  auto parallel =
      DataParallel::create(model.parameters(), model.engine(), ReducerOptions(),
                           {std::move(*group), std::make_shared<PrefixStore>("reducer", store)});
  if (!parallel) return parallel.error();
  return train(model, parallel->get());
}

Status train_alone() {
  std::vector<int> samples;
  for (int sample = 0; sample < kSamples; ++sample) samples.push_back(sample);
  Model model(std::move(samples));
  return train(model, nullptr);
}

int usage() {
  std::fprintf(stderr, "usage: train [RANK RANKS FOLDER]; RANKS is 2, 4 or 8, RANK is below it\n");
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 1 && argc != 4) return usage();
  Status status;
  if (argc == 4) {
    const int rank = std::atoi(argv[1]);
    const int ranks = std::atoi(argv[2]);
    if ((ranks != 2 && ranks != 4 && ranks != 8) || rank < 0 || rank >= ranks) return usage();
    status = train_together(rank, ranks, argv[3]);
  } else {
    status = train_alone();
  }
  if (status.ok()) return 0;
  std::fprintf(stderr, "train: %s\n", status.to_string().c_str());
  return 1;
}
