// This component checks models whose parameters, values, buffers and replicas lie on devices of
// two kinds, placed by chance. The reducer must refuse the models that it does not support (B5,
// F8, P15), and reduce the gradients of the others rightly. In a program of a case all tensors
// lie on one kind of device.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "faults/sim/device/sim_device.h"
#include "properties/components/checks.h"
#include "reducer/base/check.h"
#include "reducer/comm/store.h"
#include "reducer/data_parallel.h"
#include "reducer/device/host/host_device.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

constexpr std::uint32_t kNumbers = 3;  // of devices
constexpr std::uint32_t kTrainedSteps = 2;
constexpr std::int64_t kPlacedElements = 2;

// A group of one rank, whose sums change nothing.
class NearGroup final : public ProcessGroup {
 public:
  NearGroup(bool reaches_hosts, bool reaches_gpus)
      : reaches_hosts_(reaches_hosts), reaches_gpus_(reaches_gpus) {}
  int rank() const override { return 0; }
  int size() const override { return 1; }
  bool can_reduce(DType) const override { return true; }
  bool can_reach(const Device& device) const override {
    return device.is_host() ? reaches_hosts_ : reaches_gpus_;
  }
  platform::Duration timeout() const override { return std::chrono::seconds(5); }
  Status start(const Collective& collective, Work& work) override {
    work.begin(next_++);
    const std::size_t bytes = collective.count * size_of(collective.dtype);
    if (collective.op == Op::kAllGather) std::copy_n(collective.data, bytes, collective.gathered);
    work.complete(Status());
    return {};
  }
  void abort(const Status&) override {}

 private:
  const bool reaches_hosts_;
  const bool reaches_gpus_;
  std::int64_t next_ = 0;
};

class Placement {
 public:
  explicit Placement(Choices& choices)
      : chance_(choices),
        hosts_{HostDevice(number_of_device(), FreshMemory::kNaN),
               HostDevice(number_of_device(), FreshMemory::kNaN)},
        gpu_(options_of(number_of_device())),
        engine_(static_cast<int>(kNumbers) - 1),
        reaches_hosts_(!chance_.percent(10)),
        reaches_gpus_(!chance_.percent(15)),
        has_values_(chance_.percent(50)) {
    const std::uint32_t count = 1 + chance_.below(3);
    const bool has_replica = chance_.percent(30);
    for (std::uint32_t i = 0; i < count; ++i) {
      Device& device = draw_device();
      const bool is_frozen = chance_.percent(30);
      add(parameters_, "p" + std::to_string(i), device, is_frozen);
      if (!has_replica) continue;
      Device& other = chance_.percent(40) ? draw_device() : device;
      add(copies_, "q" + std::to_string(i), other, is_frozen);
    }
    for (std::uint32_t i = chance_.below(3); i > 0; --i)
      buffers_.push_back(make_ref<Buffer>("b" + std::to_string(i), tensor(draw_device(), {1, 2})));
  }

  // Returns what is wrong, or an empty text.
  std::string judge() {
    const std::string reason = reason_to_refuse();
    const Status status = construct();
    std::string flaw;
    if (reason.empty())
      flaw = status.ok() ? train() : "it is refused: " + status.to_string();
    else if (status.code() != Code::kInvalidArgument)
      flaw = "it is not refused, although " + reason;
    parallel_.reset();
    if (flaw.empty() && !gpu_.findings().empty()) flaw = gpu_.findings().front().to_string();
    return flaw.empty() ? flaw : flaw + describe();
  }

 private:
  static simulated::DeviceOptions options_of(int number) {
    simulated::DeviceOptions options;
    options.index = number;
    options.uses = simulated::Uses::kNoted;
    return options;
  }
  int number_of_device() { return static_cast<int>(chance_.below(kNumbers)); }
  Device& draw_device() {
    switch (chance_.below(4)) {
      case 0:
        return hosts_[0];
      case 1:
        return hosts_[1];
      default:
        return gpu_;
    }
  }

  void add(std::vector<Ref<Parameter>>& list, const std::string& name, Device& device,
           bool is_frozen) {
    list.push_back(make_ref<Parameter>(name, device, DType::kFloat32,
                                       Shape::row_major({kPlacedElements}), !is_frozen,
                                       engine_.next_sequence()));
    if (has_values_) list.back()->set_value(tensor(device, {3, 4}));
  }

  // ---- What the contract says ----

  static bool are_of_one_kind(const Device& one, const Device& other) {
    return &one == &other || (one.is_host() && other.is_host());
  }
  bool can_reach(const Device& device) const {
    return device.is_host() ? reaches_hosts_ : reaches_gpus_;
  }

  std::string reason_to_refuse() const {
    for (std::size_t i = 0; i < copies_.size(); ++i)
      if (!are_of_one_kind(parameters_[i]->device(), copies_[i]->device()))
        return "a replica is on another kind of device";
    for (const Ref<Parameter>& one : parameters_)
      for (const Ref<Parameter>& other : parameters_)
        if (one->requires_grad() && other->requires_grad() &&
            one->device().index() == other->device().index() &&
            !are_of_one_kind(one->device(), other->device()))
          return "a host device and a GPU have one number";
    for (const Ref<Parameter>& each : parameters_)
      if ((each->requires_grad() || each->value().defined()) && !can_reach(each->device()))
        return "the group cannot reach a parameter";
    for (const Ref<Buffer>& each : buffers_)
      if (!can_reach(each->value().device())) return "the group cannot reach a buffer";
    return {};
  }

  // ---- What the reducer does ----

  Status construct() {
    ReducerOptions options;
    options.gradient_as_bucket_view = chance_.percent(50);
    options.bucket_limits = {chance_.percent(50) ? 1u : 1u << 20};
    options.buffers = buffers_;
    if (!copies_.empty()) options.replicas.push_back({copies_, {}});
    Membership membership;
    membership.group = std::make_shared<NearGroup>(reaches_hosts_, reaches_gpus_);
    membership.store = std::make_shared<HashStore>();
    auto made = DataParallel::create(parameters_, engine_, std::move(options), membership);
    if (!made) return made.error();
    parallel_ = std::move(*made);
    return {};
  }

  std::string train() {
    for (std::uint32_t step = 0; step < kTrainedSteps; ++step)
      if (std::string flaw = train_step(static_cast<float>(step + 1)); !flaw.empty()) return flaw;
    for (const BucketLayout& bucket : parallel_->reducer().layout().buckets)
      for (const BucketMember& member : bucket.members)
        if (parameters_[member.parameter]->device().index() != bucket.device)
          return "a bucket is of another device than its parameter";
    return {};
  }

  // Every parameter is an output of the model.
  std::string train_step(float value) {
    std::vector<Edge> outputs;
    std::vector<Tensor> gradients;
    const auto module = [&](std::vector<Edge>& made) {
      for (const auto* const list : {&parameters_, &copies_})
        for (const Ref<Parameter>& each : *list)
          if (each->requires_grad()) made.push_back({each, 0});
      return Status();
    };
    Status status = parallel_->forward(module, outputs);
    for (const auto* const list : {&parameters_, &copies_})
      for (const Ref<Parameter>& each : *list) {
        each->undefine_grad();
        if (each->requires_grad()) gradients.push_back(tensor(each->device(), {value, value + 2}));
      }
    if (status.ok()) status = engine_.backward(outputs, gradients, false);
    if (!status.ok()) return "a step fails: " + status.to_string();
    const float replicas = copies_.empty() ? 1 : 2;
    for (const Ref<Parameter>& each : parameters_) {
      if (!each->requires_grad()) continue;
      const Tensor& gradient = each->grad();
      // Two host devices of one number share a bucket.
      if (!gradient.defined() || !are_of_one_kind(gradient.device(), each->device()))
        return "the gradient of " + each->name() + " is elsewhere";
      if (values_of_placed(gradient) != std::array{replicas * value, replicas * (value + 2)})
        return "the gradient of " + each->name() + " is wrong";
    }
    return {};
  }

  static Tensor tensor(Device& device, std::array<float, kPlacedElements> values) {
    Result<Tensor> made =
        Tensor::empty(device, DType::kFloat32, Shape::row_major({kPlacedElements}));
    LOCKSTEP_CHECK(made.has_value());
    LOCKSTEP_CHECK(
        write(device, std::as_bytes(std::span(values)), made->data(), platform::Deadline::never())
            .ok());
    return std::move(*made);
  }
  static std::array<float, kPlacedElements> values_of_placed(const Tensor& tensor) {
    std::array<float, kPlacedElements> values{};
    LOCKSTEP_CHECK(read(tensor.device(), tensor.data(), std::as_writable_bytes(std::span(values)),
                        platform::Deadline::never())
                       .ok());
    return values;
  }

  std::string describe() const {
    const auto name = [this](const Device& device) {
      return fmt::format("{}{}", &device == &gpu_ ? "GPU" : "host", device.index());
    };
    std::string text = " (the group reaches";
    text += reaches_hosts_ ? " hosts" : "";
    text += reaches_gpus_ ? " GPUs" : "";
    for (const auto* const list : {&parameters_, &copies_})
      for (const Ref<Parameter>& each : *list)
        text += fmt::format("; {}{} on {}", each->requires_grad() ? "" : "frozen ", each->name(),
                            name(each->device()));
    for (const Ref<Buffer>& each : buffers_)
      text += fmt::format("; {} on {}", each->name(), name(each->value().device()));
    return text + ")";
  }

  Choices& chance_;
  std::array<HostDevice, 2> hosts_;
  simulated::SimDevice gpu_;
  Engine engine_;
  const bool reaches_hosts_;
  const bool reaches_gpus_;
  const bool has_values_;
  std::vector<Ref<Parameter>> parameters_;
  std::vector<Ref<Parameter>> copies_;  // the second replica, if there is one
  std::vector<Ref<Buffer>> buffers_;
  std::unique_ptr<DataParallel> parallel_;
};

}  // namespace

std::string check_placement(Choices& choices) { return Placement(choices).judge(); }

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
