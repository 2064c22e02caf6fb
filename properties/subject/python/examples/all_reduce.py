"""An all-reduce by hand: after the backward of a synced step every gradient becomes the average over the ranks."""

import torch
import torch.distributed as dist


def wrap(module):
    trained = {name: each for name, each in module.named_parameters() if each.requires_grad}
    used = set()
    for name, parameter in trained.items():
        parameter.register_hook(lambda _, name=name: used.add(name))

    def after_backward():  # each rank calls it after the backward of a synced step
        counts = torch.tensor([name in used for name in trained], dtype=torch.int32)
        dist.all_reduce(counts)
        for parameter, count in zip(trained.values(), counts.tolist()):
            if count > 0:
                parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()
        used.clear()

    module.after_backward = after_backward
    return module


wrap.can = """dynamic no_grad several_forwards several_backwards discard keep_outputs between checkpoint shared frozen
              float64 strides zero_size scalars"""
# So values may round, and any number of ranks is tried. There is no float16, some sums of which Gloo gets wrong (FINDINGS.md).
wrap.order, wrap.scale = "Gloo's ring", "divide after"
