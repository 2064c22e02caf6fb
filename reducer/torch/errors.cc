#include "reducer/torch/errors.h"

#include <torch/csrc/Exceptions.h>

namespace lockstep::torch_adapter {
namespace {

namespace py = pybind11;

PyObject* error_type = nullptr;  // It lives as long as the process.

// What DistributedDataParallel says of the same, which libraries and people look for.
const char* words_of_ddp(Code code) {
  switch (code) {
    case Code::kIncomplete:
      return " (DistributedDataParallel says of the same, in the next forward: Expected to have "
             "finished reduction in the prior iteration before starting a new one. If parameters "
             "are not always used, enable unused parameter detection by passing the keyword "
             "argument `find_unused_parameters=True`, and make sure that all `forward` function "
             "outputs participate in calculating loss)";
    case Code::kReadyTwice:
      return " (Expected to mark a variable ready only once.)";
    case Code::kUsageChanged:
      return " (Your training graph has changed in this iteration)";
    default:
      return "";
  }
}

[[noreturn]] void throw_what_python_has() {
  python_error wrapped;
  wrapped.persist();
  throw wrapped;
}

}  // namespace

void define_error(py::module_& module) {
  error_type =
      PyErr_NewException("lockstep.torch.LockstepError", PyExc_RuntimeError, py::dict().ptr());
  module.attr("LockstepError") = py::reinterpret_borrow<py::object>(error_type);
  // pybind11 knows nothing of the exception in which PyTorch wraps those of Python.
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (python_error& error) {
      error.restore();
    }
  });
}

void raise(const Status& status) {
  const py::gil_scoped_acquire gil;
  // A Ctrl-C that came in the meantime is the cause, as _interrupts.py has ended the group for it.
  if (PyErr_CheckSignals() != 0) throw_what_python_has();
  const Failure& failure = status.failure();
  const py::object error = py::reinterpret_borrow<py::object>(error_type)(
      "lockstep: " + failure.to_string() + words_of_ddp(failure.code));
  error.attr("code") = name_of(failure.code);
  const auto number_or_none = [](std::int64_t number) -> py::object {
    if (number == kNone) return py::none();
    return py::int_(number);
  };
  error.attr("rank") = number_or_none(failure.rank);
  error.attr("reported_by") = number_or_none(failure.reported_by);
  error.attr("suspect") = number_or_none(failure.suspect);
  error.attr("step") = number_or_none(failure.pass);
  error.attr("bucket") = number_or_none(failure.bucket);
  error.attr("collective") = failure.collective;
  error.attr("parameters") = failure.parameters;
  PyErr_SetObject(error_type, error.ptr());
  throw_what_python_has();
}

void refuse(const std::string& why) { raise(Status(Code::kInvalidArgument, why)); }

}  // namespace lockstep::torch_adapter
