"""What the profiles of FSDP2, HSDP and `replicate` share: they are one implementation."""

import torch
from profiles import set_for_a_while
from torch.distributed.fsdp import FSDPModule

if not hasattr(torch.cpu.Stream, "record_event"):
    raise ImportError("this PyTorch's FSDP2 does not run on CPUs: its torch.cpu.Stream has no record_event")


def groups_of(state):
    """The groups of parameters of one module; there was at most one before some version of PyTorch 2."""
    if hasattr(state, "_fsdp_param_groups"):
        return state._fsdp_param_groups
    return [] if state._fsdp_param_group is None else [state._fsdp_param_group]


class Gradients:
    """Reads gradients as the sharded parameters have them, with what a window without synchronization has gathered. That
    lies on parameters that neither module nor optimizer holds."""

    def __init__(self, module):
        self.names = {}  # by the name of the module that has it
        for name, holder in module._modules.items():  # also those that are there twice
            self.names[name] = holder.weight
        states = [each._get_fsdp_state() for each in module.modules() if isinstance(each, FSDPModule)]
        self.groups = [group for state in states for group in groups_of(state)]

    def __call__(self, name):
        parameter = self.names[name]
        total = None if parameter.grad is None else parameter.grad.full_tensor()
        for group in self.groups:
            for each in group.fsdp_params:
                local = getattr(getattr(each, "_unsharded_param", None), "grad", None)
                if each.sharded_param is parameter and local is not None:
                    total = local if total is None else total + local
        return total


def with_windows(module, setter=None):
    """Adds no_sync(), and gradients that a window has gathered."""
    module.no_sync = set_for_a_while(setter or module.set_requires_gradient_sync)
    module.gradient = Gradients(module)
    return module


def with_gradients(module):
    """Adds gradients that are read from the sharded parameters."""
    module.gradient = Gradients(module)
    return module
