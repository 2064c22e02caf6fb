"""What DistributedDataParallel's logger knows: the record of _get_ddp_logging_data(), and the attribute `logger`."""

import os
import time
import weakref

import torch
import torch.distributed as dist

ENVIRONMENT = ("MASTER_ADDR", "MASTER_PORT", "TORCH_DISTRIBUTED_DEBUG", "CUDA_VISIBLE_DEVICES", "GLOO_SOCKET_IFNAME",
               "GLOO_DEVICE_TRANSPORT")
ALWAYS_TIMED = 10  # the first passes; then one in `sample_rate`
SAMPLE_RATE = 100


class LoggerFace:
    """DistributedDataParallel's logger, as Python sees it: it keeps the last error."""

    error = ""

    def set_error_and_log(self, error):
        self.error = error

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *arguments, **options: None


class TorchLogger(dist.Logger):
    """The same as an object of PyTorch's C++, for its functions that take one. PyTorch's logger belongs to a reducer of
    PyTorch's: this one's has one parameter that nobody uses."""

    def __init__(self, process_group):
        super().__init__(dist.Reducer([torch.zeros(1, requires_grad=True)], [[0]], [1], process_group))

    @property
    def error(self):
        return super()._get_ddp_logging_data().strs_map.get("error", "")


def make_logger(process_group):
    try:
        return TorchLogger(process_group)
    except TypeError:  # another constructor, as in other versions
        return LoggerFace()


class Times:
    """Of the passes that the logger looks at, in nanoseconds of time.perf_counter_ns()."""

    sample_rate = SAMPLE_RATE

    def __init__(self, wrapper):
        self._wrapper, self._begin, self._count, self._sums = weakref.ref(wrapper), 0, 0, {}
        self.last = {}

    def forward_begins(self, iteration):
        """Before each synced forward, with the number of those before."""
        if iteration > 0 and (iteration < ALWAYS_TIMED or iteration % self.sample_rate == 0):
            self._note(iteration, self._wrapper()._reducer.last_pass())
        self._begin = time.perf_counter_ns()

    def _note(self, iteration, times):
        self.last["iteration"] = iteration
        if times is None:
            return
        spans = {
            "forward_compute_time": times["armed"] - self._begin,
            "backward_compute_time": times["last_gradient"] - times["first_gradient"],
            "backward_comm_time": times["completed"] - times["launched"],
            "backward_compute_comm_overlap_time": max(0, times["last_gradient"] - times["launched"]),
        }
        self._count += 1
        for name, span in spans.items():
            self._sums[name] = self._sums.get(name, 0) + span
        self.last.update(spans)
        self.last.update({"avg_" + name: total // self._count for name, total in self._sums.items()})
        self.last.update(
            forward_compute_time_start=self._begin,
            backward_compute_time_start=times["first_gradient"],
            backward_compute_time_end=times["last_gradient"],
            backward_comm_time_start=times["launched"],
            backward_comm_time_end=times["completed"],
            num_buckets_reduced=times["buckets"],
        )


class LoggingData:
    @property
    def logger(self):
        if "_logger" not in self.__dict__:
            self.__dict__["_logger"] = make_logger(self.process_group)
        return self.__dict__["_logger"]

    @logger.setter
    def logger(self, value):
        self.__dict__["_logger"] = value

    def _get_ddp_logging_data(self):
        trained = [each for _, each in self._members.named if each.requires_grad]
        dtypes = dict.fromkeys(str(each.dtype).replace("torch.", "").replace("float32", "float").replace("float64", "double")
                               for each in trained)
        bytes_of = [each.numel() * each.element_size() for _, each in self._members.named]
        sizes = ", ".join(str(sum(bytes_of[index] for index in bucket)) for bucket in self._reducer.bucket_members())
        data = {
            "world_size": dist.get_world_size(self.process_group),
            "rank": dist.get_rank(self.process_group),
            "module_name": type(self.module).__name__,
            "device_ids": "",
            "output_device": -1,
            "backend_name": dist.get_backend(self.process_group),
            "iteration": self.num_iterations,
            "dtypes": ", ".join(dtypes),
            "has_sync_bn": int(any(isinstance(part, torch.nn.SyncBatchNorm) for part in self.module.modules())),
            "has_rebuilt_buckets": int(self._reducer.is_rebuilt()),
            "can_set_static_graph": False,
            "find_unused_parameters": int(self.find_unused_parameters),
            "static_graph": int(self.static_graph),
            "gradient_as_bucket_view": int(self.gradient_as_bucket_view),
            "broadcast_buffers": int(self.forward_sync_buffers),
            "bucket_cap_bytes": self.bucket_bytes_cap,
            "bucket_sizes": sizes,
            "num_parameter_tensors": len(trained),
            "total_parameter_size_bytes": sum(each.numel() * each.element_size() for each in trained),
            "join_uneven_inputs": bool(self._is_joining),
        }
        if self._reducer.is_rebuilt():
            data.update(rebuilt_bucket_sizes=sizes, **self._orders())
        for name in ENVIRONMENT:
            data[name.lower()] = os.environ.get(name, "N/A")
        threads = threads_of(self.process_group)
        if threads is not None:
            data["gloo_num_threads"] = threads
        if self._hook:
            data["comm_hook"] = self._hook[2]
        data.update(self._times.last)
        error = self.logger.error or self._reducer.failure()
        if error:
            data.update(has_error=1, error=error)
        return data

    def _orders(self):
        """The orders in which gradients came and lie, by their numbers among the trained parameters."""
        trained = [index for index, (_, each) in enumerate(self._members.named) if each.requires_grad]
        number = {index: str(position) for position, index in enumerate(trained)}
        buckets = [" ".join(number[each] for each in bucket) for bucket in self._reducer.bucket_members()]
        return {
            "prev_iteration_grad_ready_order_indices": ", ".join(number[each] for each in self._reducer.rebuilt_order()),
            "rebuilt_per_bucket_param_indices": ", ".join(buckets),
        }

    def _set_ddp_runtime_logging_sample_rate(self, sample_rate):
        if sample_rate < 1:
            raise ValueError("DDP runtime logging sample rate should be equal or greater than 1")
        self._times.sample_rate = sample_rate

    def _log_and_throw(self, err_type, err_msg):
        self.logger.set_error_and_log("%s: %s" % (err_type, err_msg))
        raise err_type(err_msg)


def threads_of(process_group):
    """Of the process group of torch.distributed; None if it does not say."""
    try:
        return process_group._get_backend(torch.device("cpu")).options._threads
    except (AttributeError, RuntimeError):
        return None
