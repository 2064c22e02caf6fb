"""Makes a GPU a place on the CPU, so that PyTorch's tests of DDP that ask for GPUs run on a machine without one.

`before_import()` opens what distributed_test.py keeps closed: it is called before that module is imported, as the decorators
of its tests run then. `after_import()` closes PyTorch's decorators again, and turns devices, streams and SyncBatchNorm to the
CPU. Both change the process that calls them, and no file of PyTorch.

A tensor that is moved to a GPU becomes a copy on the CPU, as it would become a copy there. Streams and events do nothing: what
the CPU computes is there when a call returns.
"""

import contextlib
import functools
import os
import unittest

import torch
import torch.distributed
import torch.distributed.nn.functional
from torch.overrides import TorchFunctionMode
from torch.testing._internal import common_distributed, common_utils

CPU = torch.device("cpu")
GPUS = 16  # how many there seem to be
rank_here = 0  # what torch.cuda.current_device() answers; a rank sets it


def is_gpu(device):
    if isinstance(device, bool):
        return False
    if isinstance(device, torch.device):
        return device.type == "cuda"
    return isinstance(device, int) or (isinstance(device, str) and device.startswith("cuda"))


# --- what keeps tests closed -----------------------------------------------------------------------------------------

opened = {}  # the name of a test, and why PyTorch leaves it out


def leave_open(function, reason):
    opened[function.__name__] = reason
    return functools.wraps(function)(lambda *arguments, **options: function(*arguments, **options))


def open_unless(kept, is_opened):
    """A decorator maker in the place of unittest's: reasons that `is_opened` do not close a test."""

    def make(*arguments):
        reason = arguments[-1]
        if is_opened(reason):
            return lambda function: leave_open(function, reason)
        return kept(*arguments)

    return make


def names_an_issue(reason):
    return isinstance(reason, str) and ("github.com/pytorch" in reason or "Currently failing" in reason)


def skips_nothing(*_arguments, **_options):
    return lambda function: function


kept = {}
PATCHED = (
    (unittest, "skip"),
    (unittest, "skipIf"),
    (common_utils, "skip_but_pass_in_sandcastle"),
    (common_utils, "skip_but_pass_in_sandcastle_if"),
)


def before_import():
    """Tests that want GPUs, and those that PyTorch leaves out for an issue of its own, are run."""
    common_distributed.skip_if_lt_x_gpu = skips_nothing
    common_distributed.nccl_skip_if_lt_x_gpu = skips_nothing
    common_distributed.require_n_gpus_for_nccl_backend = skips_nothing
    common_distributed.skip_if_no_gpu = lambda function: function
    common_distributed.init_multigpu_helper = lambda world_size, _backend: {rank: [rank] for rank in range(world_size)}
    common_distributed.HAS_ACCELERATOR = True
    for module, name in PATCHED:
        kept[module, name] = getattr(module, name)
        setattr(module, name, open_unless(kept[module, name], names_an_issue))


# --- devices ---------------------------------------------------------------------------------------------------------


class GpusAreOnTheCpu(TorchFunctionMode):
    """Every call that names a GPU names the CPU instead."""

    def __torch_function__(self, function, types, arguments=(), options=None):
        options = dict(options or {})
        moved = function is torch.Tensor.cuda
        if moved:
            function, arguments, options = torch.Tensor.to, (arguments[0], CPU), {}
        elif is_gpu(options.get("device")):
            options["device"] = CPU
            moved = function is torch.Tensor.to
        elif function is torch.Tensor.to and len(arguments) > 1 and is_gpu(arguments[1]):
            arguments = (arguments[0], CPU, *arguments[2:])
            moved = True
        result = function(*arguments, **options)
        if moved and result is arguments[0] and not isinstance(result, torch.nn.Parameter):
            return result.clone()
        return result


def play_devices():
    def to(self, *arguments, **options):
        options = {name: CPU if name == "device" and is_gpu(value) else value for name, value in options.items()}
        return move(self, *(CPU if is_gpu(value) else value for value in arguments), **options)

    move = torch.nn.Module.to
    torch.nn.Module.to = to
    torch.nn.Module.cuda = lambda self, device=None: self
    GpusAreOnTheCpu().__enter__()  # for the life of the process


class Stream:
    """A stream or an event whose work is done at once."""

    def __init__(self, *_arguments, **_options):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        return None

    def record_event(self, _event=None):
        return Stream()

    def query(self):
        return True

    def elapsed_time(self, _other):
        return 0.0

    def record(self, *_arguments, **_options):
        pass

    wait_stream = wait_event = synchronize = wait = record


def answering(value):
    """A function of its own for each name, as torch.compile keeps what it knows of functions by their identity."""
    return lambda *_arguments, **_options: value() if callable(value) else value


def play_streams():
    for name in ("set_device", "synchronize", "manual_seed", "manual_seed_all", "set_stream"):
        setattr(torch.cuda, name, answering(None))
    for name in ("current_stream", "default_stream"):
        setattr(torch.cuda, name, answering(Stream))
    for name in ("stream", "device"):
        setattr(torch.cuda, name, answering(contextlib.nullcontext))
    torch.cuda.current_device = answering(lambda: rank_here)
    torch.cuda.device_count = answering(GPUS)
    torch.Stream = torch.Event = torch.cuda.Stream = torch.cuda.Event = Stream
    if hasattr(torch, "accelerator"):
        torch.accelerator.current_stream = answering(Stream)
        torch.accelerator.set_device_index = answering(None)
        torch.accelerator.synchronize = answering(None)
        torch.accelerator.current_device_index = answering(lambda: rank_here)


# --- SyncBatchNorm, whose kernels are CUDA's alone -------------------------------------------------------------------


def sums_over_ranks(tensor, group):
    return torch.distributed.nn.functional.all_reduce(tensor, group=group)


def normalized_over_ranks(self, values, group):
    """The normalized values of a training step, and what goes into the running statistics."""
    others = [dim for dim in range(values.dim()) if dim != 1]
    count = torch.tensor([values.numel() / values.size(1)], dtype=values.dtype)
    torch.distributed.all_reduce(count, group=group)
    shape = [1, values.size(1)] + [1] * (values.dim() - 2)
    mean = sums_over_ranks(values.sum(others), group) / count
    centered = values - mean.view(shape)
    variance = sums_over_ranks(centered.square().sum(others), group) / count
    return centered * torch.rsqrt(variance + self.eps).view(shape), mean, variance, count


def synced_batch_norm(self, values):
    self._check_input_dim(values)
    self._check_non_zero_input_channels(values)
    counts = self.training and self.track_running_stats and self.num_batches_tracked is not None
    if counts:
        self.num_batches_tracked.add_(1)
    momentum = self.momentum
    if momentum is None:
        momentum = 1.0 / self.num_batches_tracked.item() if counts else 0.0
    group = self.process_group or torch.distributed.group.WORLD
    if not self.training or torch.distributed.get_world_size(group) == 1:
        of_batch = self.training or self.running_mean is None
        keeps = not self.training or self.track_running_stats
        statistics = (self.running_mean, self.running_var) if keeps else (None, None)
        return torch.nn.functional.batch_norm(values, *statistics, self.weight, self.bias, of_batch, momentum, self.eps)
    wide = values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
    result, mean, variance, count = normalized_over_ranks(self, wide, group)
    if self.running_mean is not None:
        with torch.no_grad():
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
            self.running_var.lerp_((variance * count / (count - 1)).to(self.running_var.dtype), momentum)
    if self.weight is not None:
        shape = [1, -1] + [1] * (wide.dim() - 2)
        result = result * self.weight.view(shape).to(wide.dtype) + self.bias.view(shape).to(wide.dtype)
    result = result.to(values.dtype)
    if values.dim() == 4 and values.is_contiguous(memory_format=torch.channels_last):
        result = result.contiguous(memory_format=torch.channels_last)
    return result


def after_import(tests):
    """`tests` is the module distributed_test."""
    for (module, name), function in kept.items():
        setattr(module, name, function)
    play_devices()
    play_streams()
    torch.nn.SyncBatchNorm.forward = synced_batch_norm
    torch.nn.parallel.DistributedDataParallel._passing_sync_batchnorm_handle = lambda self, module: None
    tests.autocast = functools.partial(torch.amp.autocast, "cpu")
    if hasattr(torch.amp, "GradScaler"):
        tests.GradScaler = functools.partial(torch.amp.GradScaler, "cpu")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
