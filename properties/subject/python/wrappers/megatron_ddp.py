"""Megatron-core's DistributedDataParallel without overlap and without its distributed optimizer. Gradients are in main_grad,
which zero_grad_buffer() clears. Its buffers are on a GPU; here the current device is the CPU."""

from unittest import mock

import torch
from launched import set_environment
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.transformer import TransformerConfig
from profiles import guess, once_for_group, unused_parameters


@once_for_group
def initialize():
    parallel_state.destroy_model_parallel()
    parallel_state.initialize_model_parallel(create_gloo_process_groups=False)


class Megatron(torch.nn.Module):
    def __init__(self, module, **options):
        super().__init__()
        set_environment()
        with mock.patch("torch.cuda.current_device", lambda: "cpu"):
            initialize()
            config = TransformerConfig(num_layers=1, hidden_size=1, num_attention_heads=1)
            self.wrapped = DistributedDataParallel(config, DistributedDataParallelConfig(**options), module)
        self.named = dict(module._modules)
        module.zero_grad = lambda set_to_none=True: self.wrapped.zero_grad_buffer()

    def forward(self, *arguments):
        return self.wrapped(*arguments)

    def no_sync(self):
        return self.wrapped.no_sync()

    def after_backward(self):
        self.wrapped.finish_grad_sync()

    def gradient(self, name):
        return getattr(self.named[name].weight, "main_grad", None)


def wrap(module):
    return Megatron(module)


wrap.can = "frozen"


@guess("no_sync", excludes=[unused_parameters])
def no_sync_around_the_forward(module):
    return Megatron(module)


@guess("no_sync", no_sync="backward", excludes=[unused_parameters])
def no_sync_around_the_backward(module):
    return Megatron(module)


@guess("several_backwards several_forwards")
def two_losses_before_a_step(module):
    return Megatron(module)


@guess("dynamic", "definedness")
def ranks_use_other_parameters(module):
    """What no rank uses has zeros, where a gradient would be None."""
    return Megatron(module)
