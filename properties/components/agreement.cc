// This component checks the description that a rank gives of itself when a reducer is
// constructed (reducer/replica_set.h). Two descriptions must differ exactly where the models and
// options differ, whatever that one difference is (B4). In programs the differences are those of
// a few kinds alone.
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "properties/components/checks.h"
#include "reducer/base/check.h"
#include "reducer/device/host/host_device.h"
#include "reducer/hooks/builtin_hooks.h"
#include "reducer/replica_set.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

constexpr std::int64_t kWide = 3;

// What describes one parameter or buffer.
struct Described {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape = Shape::row_major({2, kWide});
  bool is_elsewhere = false;  // on the second device
  bool is_frozen = false;
  bool is_sparse = false;
  bool has_value = true;
};

// A model of two parameters and a buffer, with a second replica, and its options.
struct DescribedModel {
  std::vector<Described> parameters{{.name = "p"}, {.name = "q"}};
  Described buffer{.name = "b"};
  bool has_second_buffer = false;
  bool replica_has_parameter = true;
  bool replica_has_buffer = true;
  std::string replica_name = "r";
  ReducerOptions options;
};

Shape column_major() {
  Shape shape = Shape::row_major({2, kWide});
  shape.strides[0] = 1;
  shape.strides[1] = 2;
  return shape;
}

// Something in which two ranks must not differ.
struct Difference {
  const char* name;
  void (*make)(DescribedModel& model);
};

const std::vector<Difference>& differences() {
  static const std::vector<Difference> all{
      {"the number of parameters",
       [](DescribedModel& m) { m.parameters.push_back({.name = "s"}); }},
      {"the order of parameters",
       [](DescribedModel& m) { std::swap(m.parameters[0].name, m.parameters[1].name); }},
      {"the dtype of a parameter",
       [](DescribedModel& m) { m.parameters[1].dtype = DType::kFloat64; }},
      {"the shape of a parameter",
       [](DescribedModel& m) {
         m.parameters[1].shape = Shape::row_major({2, kWide + 1});
       }},
      {"the strides of a parameter",
       [](DescribedModel& m) { m.parameters[1].shape = column_major(); }},
      {"the device of a parameter", [](DescribedModel& m) { m.parameters[1].is_elsewhere = true; }},
      {"whether a parameter requires a gradient",
       [](DescribedModel& m) { m.parameters[1].is_frozen = true; }},
      {"whether a parameter's gradients are sparse",
       [](DescribedModel& m) { m.parameters[1].is_sparse = true; }},
      {"whether a parameter has a value",
       [](DescribedModel& m) { m.parameters[1].has_value = false; }},
      {"the name of a buffer", [](DescribedModel& m) { m.buffer.name = "c"; }},
      {"the dtype of a buffer", [](DescribedModel& m) { m.buffer.dtype = DType::kFloat64; }},
      {"the shape of a buffer",
       [](DescribedModel& m) {
         m.buffer.shape = Shape::row_major({1, kWide});
       }},
      {"the strides of a buffer", [](DescribedModel& m) { m.buffer.shape = column_major(); }},
      {"the device of a buffer", [](DescribedModel& m) { m.buffer.is_elsewhere = true; }},
      {"the number of buffers", [](DescribedModel& m) { m.has_second_buffer = true; }},
      {"whether the replica has its parameters",
       [](DescribedModel& m) { m.replica_has_parameter = false; }},
      {"whether the replica has its buffers",
       [](DescribedModel& m) { m.replica_has_buffer = false; }},
      {"the names of a replica's parameters", [](DescribedModel& m) { m.replica_name = "t"; }},
      {"find_unused_parameters",
       [](DescribedModel& m) { m.options.find_unused_parameters = true; }},
      {"static_graph", [](DescribedModel& m) { m.options.static_graph = !m.options.static_graph; }},
      {"gradient_as_bucket_view",
       [](DescribedModel& m) {
         m.options.gradient_as_bucket_view = !m.options.gradient_as_bucket_view;
       }},
      {"reduction", [](DescribedModel& m) { m.options.reduction = Reduction::kRankOrdered; }},
      {"verify_payload",
       [](DescribedModel& m) { m.options.verify_payload = !m.options.verify_payload; }},
      {"skip_unused_buckets",
       [](DescribedModel& m) { m.options.skip_unused_buckets = !m.options.skip_unused_buckets; }},
      {"rebuild_buckets",
       [](DescribedModel& m) { m.options.rebuild_buckets = !m.options.rebuild_buckets; }},
      {"auto_sync", [](DescribedModel& m) { m.options.auto_sync = !m.options.auto_sync; }},
      {"pinned_layout",
       [](DescribedModel& m) {
         m.options.pinned_layout = Layout{{}, 5, {}};
       }},
      {"schedule", [](DescribedModel& m) { m.options.schedule = Schedule::kAfterBackward; }},
      {"hook", [](DescribedModel& m) { m.options.hook = make_all_reduce_hook(); }},
      {"coalesced_bytes", [](DescribedModel& m) { ++m.options.coalesced_bytes; }},
      {"broadcast_buffers",
       [](DescribedModel& m) { m.options.broadcast_buffers = !m.options.broadcast_buffers; }},
      {"broadcast_chunk_bytes", [](DescribedModel& m) { ++m.options.broadcast_chunk_bytes; }},
      {"the limit of a bucket", [](DescribedModel& m) { ++m.options.bucket_limits.back(); }},
      {"the number of bucket limits",
       [](DescribedModel& m) { m.options.bucket_limits.push_back(7); }},
      {"ignored", [](DescribedModel& m) { m.options.ignored.push_back("q"); }}};
  return all;
}

class DescribedRank {
 public:
  // What the rank says of itself.
  std::vector<std::string> describe(const DescribedModel& model) {
    std::vector<Ref<Parameter>> parameters;
    Replica replica;
    for (const Described& each : model.parameters) {
      parameters.push_back(parameter(each, each.name));
      replica.parameters.push_back(model.replica_has_parameter
                                       ? parameter(each, model.replica_name + each.name)
                                       : Ref<Parameter>());
    }
    ReducerOptions options = model.options;
    options.buffers.push_back(buffer(model.buffer, model.buffer.name));
    if (model.has_second_buffer) options.buffers.push_back(buffer(model.buffer, "further"));
    for (const Ref<Buffer>& each : options.buffers)
      replica.buffers.push_back(model.replica_has_buffer
                                    ? buffer(model.buffer, model.replica_name + each->name())
                                    : Ref<Buffer>());
    options.replicas.push_back(std::move(replica));
    ReplicaSet replicas;
    LOCKSTEP_CHECK(replicas.build(parameters, options).has_value());
    return replicas.agreement();
  }

 private:
  Device& device_of(const Described& described) { return devices_[described.is_elsewhere ? 1 : 0]; }
  Tensor value(const Described& described) {
    Result<Tensor> made = Tensor::empty(device_of(described), described.dtype, described.shape);
    LOCKSTEP_CHECK(made.has_value());
    return std::move(*made);
  }
  Ref<Parameter> parameter(const Described& described, const std::string& name) {
    const Ref<Parameter> made = make_ref<Parameter>(
        name, device_of(described), described.dtype, described.shape, !described.is_frozen,
        std::uint64_t{0},
        described.is_sparse ? Parameter::Gradients::kSparse : Parameter::Gradients::kDense);
    if (described.has_value) made->set_value(value(described));
    return made;
  }
  Ref<Buffer> buffer(const Described& described, const std::string& name) {
    return make_ref<Buffer>(name, value(described));
  }

  std::array<HostDevice, 2> devices_{HostDevice(0), HostDevice(1)};
};

}  // namespace

std::string check_agreement(Choices& choices) {
  const auto& all = differences();
  DescribedModel model;
  DescribedRank rank;
  const std::vector<std::string> lines = rank.describe(model);
  if (DescribedRank().describe(model) != lines)
    return "ranks of the same model and options describe themselves differently";
  const Difference& difference = all[choices.below(static_cast<std::uint32_t>(all.size()))];
  DescribedModel other;
  difference.make(other);
  if (rank.describe(other) != lines) return {};
  return std::string("ranks describe themselves alike that differ in this: ") + difference.name;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
