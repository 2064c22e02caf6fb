// The extension module lockstep.torch._extension: what lockstep/torch/*.py calls. It is not for
// users. Every call into the reducer releases Python's global lock (GIL).
#include <pybind11/functional.h>
#include <torch/csrc/distributed/c10d/python_comm_hook.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include <algorithm>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "reducer/hooks/builtin_hooks.h"
#include "reducer/torch/c10d_store.h"
#include "reducer/torch/comm_hook.h"
#include "reducer/torch/errors.h"
#include "reducer/torch/torch_reducer.h"

namespace lockstep::torch_adapter {
namespace {

namespace py = pybind11;
using NoGil = py::call_guard<py::gil_scoped_release>;
// Name, tensor, and whether its gradients are sparse.
using Named = std::vector<std::tuple<std::string, at::Tensor, bool>>;

std::vector<NamedTensor> named_tensors(const Named& given) {
  std::vector<NamedTensor> tensors;
  for (const auto& [name, tensor, is_sparse] : given) tensors.push_back({name, tensor, is_sparse});
  return tensors;
}

platform::Duration seconds(double given) {
  constexpr double kLongest = 1e9;
  return std::chrono::milliseconds(static_cast<std::int64_t>(1000 * std::min(given, kLongest)));
}

std::shared_ptr<Group> connect(const c10::intrusive_ptr<c10d::Store>& store,
                               const std::string& prefix, int rank, int size, double timeout,
                               const std::string& address, bool share_memory) {
  auto inner = std::make_shared<PrefixStore>(prefix, std::make_shared<C10dStore>(store));
  return Group::connect(std::move(inner), rank, size, seconds(timeout), address,
                        share_memory);
}

// The hook that sends gradients in this dtype, in Lockstep's own collectives; null for none.
std::shared_ptr<CommunicationHook> compressing_hook(const std::string& dtype) {
  if (dtype.empty()) return nullptr;
  if (dtype == "float16") return make_fp16_compress_hook();
  if (dtype == "bfloat16") return make_bf16_compress_hook();
  throw py::value_error(dtype);
}

// The options that have a meaning of Lockstep's. An unknown one is a mistake of this package.
ReducerOptions reducer_options(const py::dict& given) {
  ReducerOptions options;
  for (const auto& [key, value] : given) {
    const auto name = key.cast<std::string>();
    if (name == "find_unused_parameters")
      options.find_unused_parameters = value.cast<bool>();
    else if (name == "static_graph")
      options.static_graph = value.cast<bool>();
    else if (name == "gradient_as_bucket_view")
      options.gradient_as_bucket_view = value.cast<bool>();
    else if (name == "rank_order")
      options.reduction = value.cast<bool>() ? Reduction::kRankOrdered : Reduction::kNative;
    else if (name == "verify_payload")
      options.verify_payload = value.cast<bool>();
    else if (name == "bucket_limits")
      options.bucket_limits = value.cast<std::vector<std::uint64_t>>();
    else if (name == "broadcast_buffers")
      options.broadcast_buffers = value.cast<bool>();
    else if (name == "skip_unused_buckets")
      options.skip_unused_buckets = value.cast<bool>();
    else if (name == "rebuild_buckets")
      options.rebuild_buckets = value.cast<bool>();
    else if (name == "reduce_dtype")
      options.hook = compressing_hook(value.cast<std::string>());
    else
      throw py::key_error(name);
  }
  return options;
}

// `hook`: None, or its state, its function and its name.
std::shared_ptr<TorchReducer> make_reducer(const Named& parameters, const Named& buffers,
                                           bool sends_parameters, const py::dict& given,
                                           const py::object& hook, Group& group) {
  ReducerOptions options = reducer_options(given);
  if (!hook.is_none()) {
    const auto parts = hook.cast<py::tuple>();
    std::vector<at::Tensor> variables;
    for (const auto& [name, tensor, is_sparse] : parameters) variables.push_back(tensor);
    options.hook = std::make_shared<TorchCommHook>(
        parts[2].cast<std::string>(), std::make_unique<c10d::PythonCommHook>(parts[0], parts[1]),
        std::move(variables));
  }
  const std::vector<NamedTensor> all = named_tensors(parameters);
  const std::vector<NamedTensor> sent = named_tensors(buffers);
  const py::gil_scoped_release no_gil;
  return TorchReducer::create(all, sent, sends_parameters, std::move(options), group);
}

std::string diagnosis(const TorchReducer& reducer, double patience) {
  Result<Diagnosis> joined = reducer.reducer().diagnose(seconds(patience));
  if (!joined) raise(joined.error());
  return joined->to_string();
}

at::Tensor usage_counts(const TorchReducer& reducer) {
  const std::span<const std::int32_t> counts = reducer.reducer().usage_counts();
  return at::tensor(at::ArrayRef<std::int32_t>(counts.data(), counts.size()), at::kInt);
}

// The times of the last complete pass (T3), in nanoseconds of the monotonic clock; None before one.
py::object last_pass(const TorchReducer& reducer) {
  const PassStatistics& pass = reducer.reducer().last_pass();
  if (pass.pass == kNone) return py::none();
  platform::Duration first_gradient = platform::Duration::max(), last_gradient{};
  for (const platform::Duration ready : pass.gradients) {
    if (ready == platform::Duration()) continue;  // A frozen parameter.
    first_gradient = std::min(first_gradient, ready);
    last_gradient = std::max(last_gradient, ready);
  }
  platform::Duration launched = platform::Duration::max(), completed{};
  std::size_t sent = 0;
  for (const PassStatistics::Bucket& bucket : pass.buckets) {
    if (bucket.completed == platform::Duration()) continue;  // It was skipped.
    ++sent;
    launched = std::min(launched, bucket.launched);
    completed = std::max(completed, bucket.completed);
  }
  const auto on_clock = [&](platform::Duration time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(pass.armed + time).count();
  };
  py::dict times;
  times["armed"] = on_clock({});
  times["first_gradient"] = on_clock(first_gradient);
  times["last_gradient"] = on_clock(last_gradient);
  times["launched"] = on_clock(launched);
  times["completed"] = on_clock(completed);
  times["buckets"] = sent;
  return times;
}

void define_reducer(py::module_& module) {
  py::class_<TorchReducer, std::shared_ptr<TorchReducer>>(module, "Reducer")
      .def(py::init(&make_reducer), py::arg("parameters"), py::arg("buffers"),
           py::arg("sends_parameters"), py::arg("options"), py::arg("hook"), py::arg("group"))
      .def("begin_forward", &TorchReducer::begin_forward, NoGil())
      .def("arm", &TorchReducer::arm, NoGil())
      .def(
          "begin_join",
          [](TorchReducer& reducer, bool divide_by_active, bool throws) {
            reducer.begin_join({divide_by_active, throws});
          },
          NoGil())
      .def("end_join", &TorchReducer::end_join, NoGil())
      .def("shadow_forward", &TorchReducer::shadow_forward, NoGil())
      .def("sends_buffers", &TorchReducer::sends_buffers)
      .def("last_that_trained",
           [](const TorchReducer& reducer) { return reducer.reducer().last_that_trained(); })
      .def("reset", &TorchReducer::reset, NoGil())
      .def("abort", &TorchReducer::abort, NoGil())
      .def("is_busy", &TorchReducer::is_busy)
      .def(
          "close", [](TorchReducer& reducer) { reducer.close(); }, NoGil())
      .def("check_complete", &TorchReducer::check_complete, NoGil())
      .def("is_rebuilt", &TorchReducer::is_rebuilt)
      .def("when_complete", &TorchReducer::when_complete)
      .def("is_graph_static", &TorchReducer::is_graph_static)
      .def("usage_counts", &usage_counts)
      .def("last_pass", &last_pass)
      .def("rebuilt_order",
           [](const TorchReducer& reducer) { return reducer.reducer().rebuilt_order(); })
      .def("bucket_members",
           [](const TorchReducer& reducer) {
             std::vector<std::vector<std::size_t>> members;
             for (const BucketLayout& bucket : reducer.reducer().layout().buckets) {
               members.emplace_back();
               for (const BucketMember& member : bucket.members)
                 members.back().push_back(member.parameter);
             }
             return members;
           })
      .def("failure",
           [](const TorchReducer& reducer) {
             const Status& cause = reducer.reducer().poisoned();
             return cause.ok() ? std::string() : cause.to_string();
           })
      .def("flight_record",
           [](const TorchReducer& reducer) { return to_text(reducer.reducer().flight_record()); })
      .def("diagnose", &diagnosis, NoGil());
}

}  // namespace
}  // namespace lockstep::torch_adapter

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  namespace py = pybind11;
  namespace adapter = lockstep::torch_adapter;
  module.attr("TORCH_VERSION") = TORCH_VERSION;
  adapter::define_error(module);
  py::class_<adapter::Group, std::shared_ptr<adapter::Group>>(module, "Group")
      .def(py::init(&adapter::connect), py::arg("store"), py::arg("prefix"), py::arg("rank"),
           py::arg("size"), py::arg("timeout"), py::arg("address"), py::arg("share_memory"),
           py::call_guard<py::gil_scoped_release>())
      .def_readonly("why_no_shared_memory", &adapter::Group::why_no_shared_memory);
  module.def("take_over", &adapter::TorchReducer::take_over,
             py::call_guard<py::gil_scoped_release>());
  adapter::define_reducer(module);
}
