"""FSDP2 as Accelerate prepares it, with accelerator.backward() and accelerator.no_sync(). On CPUs Accelerate takes the
plugin, and prepares DistributedDataParallel without a word; here its state says what it says on GPUs. The plugin's
reshard_after_forward=True is not for the root: parameters that are not in a module of their own stay gathered."""

import torch
from launched import Launched, set_environment
from profiles import evaluation_before_a_step, guess, uneven_calls, uneven_use, zero_grad_after_an_evaluation, zeroed_window
from sharded import Gradients

from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin


def prepare(module, **options):
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()
    set_environment()
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, **options)
    accelerator = Accelerator(cpu=True, fsdp_plugin=plugin)
    accelerator.state.distributed_type = PartialState().distributed_type = DistributedType.FSDP
    accelerator.state.fsdp_plugin = plugin
    optimizer = torch.optim.SGD([each for each in module.parameters() if each.requires_grad])
    prepared, _ = accelerator.prepare(module, optimizer)
    wrapped = Launched(prepared, accelerator.backward, lambda: accelerator.no_sync(prepared))
    wrapped.gradient = Gradients(prepared)
    return wrapped


def wrap(module):
    return prepare(module)


wrap.can = "dynamic no_grad no_sync frozen steps"
wrap.no_sync = "backward"
wrap.excludes = [uneven_calls, uneven_use, zeroed_window, evaluation_before_a_step, zero_grad_after_an_evaluation]


@guess("no_grad steps", "the module saw a parameter with the value", excludes=[uneven_calls])
def evaluation_before_the_optimizer_steps(module):
    return prepare(module, reshard_after_forward=True)


@guess("no_sync", "bits", no_sync="forward", excludes=[zeroed_window])
def no_sync_around_the_forward(module):
    return prepare(module)


@guess("no_sync", no_sync="backward", excludes=[zeroed_window])
def no_sync_around_the_backward(module):
    return prepare(module)


@guess("no_sync", "bits", no_sync="backward")
def window_is_zeroed(module):
    return prepare(module)


@guess("broadcast", "the module saw a parameter with the value")
def ranks_begin_with_other_weights(module):
    return prepare(module)
