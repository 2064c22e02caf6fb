"""mixed_precision=: a module computes in `param_dtype`, sends gradients in `reduce_dtype`, and keeps buffers in `buffer_dtype`.

Parameters, gradients and optimizers stay in the module's own dtype. In a forward, and where a checkpoint recomputes a part of
it within the backward, the module has copies in the places of its parameters (Members.cast_to).
"""

import functools

import torch
from torch.nn.parallel import distributed as torchs

from lockstep.torch._containers import with_tensors_by
from lockstep.torch._members import is_inside_of_backward

SENT = (torch.float16, torch.bfloat16)


def refusal_of(config):
    """The error of a configuration, or None."""
    if config is None:
        return None
    if not hasattr(torchs, "_MixedPrecision"):
        return NotImplementedError("this PyTorch's DistributedDataParallel has no mixed_precision: take torch.autocast")
    if reduce_dtype_of(config) not in (None, torch.float32, *SENT):
        return ValueError("reduce_dtype is %s, and has to be torch.float16, torch.bfloat16 or torch.float32" %
                          reduce_dtype_of(config))
    return None


def reduce_dtype_of(config):
    return config.reduce_dtype or config.param_dtype


class MixedPrecision:
    """What a wrapper with mixed_precision has beside its reducer. It changes the buffers of the module."""

    def __init__(self, config, members, buffers):
        self._dtype, self._members = config.param_dtype, members
        wanted = reduce_dtype_of(config)
        self.reduce_dtype = wanted if wanted in SENT else None
        self._lent = {}  # while a checkpoint recomputes: of each submodule, by its id, its own parameters
        for buffer in buffers:
            if config.buffer_dtype is not None and buffer.is_floating_point():
                buffer.data = buffer.to(config.buffer_dtype)
        for _, parameter in members.named:  # as DDP has them outside of a forward
            parameter._mp_param = torch.empty(0, dtype=self._dtype or parameter.dtype)
            parameter._fp_param = parameter.data

    def reduced_by_name(self):
        return "" if self.reduce_dtype is None else str(self.reduce_dtype).replace("torch.", "")

    def watch(self, module):
        if self._dtype is None:
            return
        for part in module.modules():
            own = self._members.own_of(part)
            if own:
                part.register_forward_pre_hook(functools.partial(self._lend, own))
                part.register_forward_hook(self._take_back, always_call=True)

    def inputs(self, inputs, kwargs):
        if self._dtype is None:
            return inputs, kwargs
        return with_tensors_by((inputs, kwargs), lambda one: one.to(self._dtype) if one.is_floating_point() else one)

    def run(self, module, inputs, kwargs):
        if self._dtype is None:
            return module(*inputs, **kwargs)
        with self._members.cast_to(self._dtype):
            return module(*inputs, **kwargs)

    def _lend(self, own, part, _inputs):
        if not is_inside_of_backward() or any(part._parameters[name] is not value for name, value in own.items()):
            return  # within run(), or by somebody else, who computes with the parameters themselves
        self._lent[id(part)] = own
        part._parameters.update({name: value.to(self._dtype) if value.is_floating_point() else value
                                 for name, value in own.items()})

    def _take_back(self, part, _inputs, _output):
        part._parameters.update(self._lent.pop(id(part), {}))
