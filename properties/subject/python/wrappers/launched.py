"""What the profiles of libraries share that expect to be launched as by torchrun, and that have a backward of their own."""

import contextlib
import os

import torch
import torch.distributed as dist


def set_environment():
    """A rank is told by its environment who it is; the process group is there already."""
    for name, value in (("RANK", dist.get_rank()), ("LOCAL_RANK", dist.get_rank()), ("WORLD_SIZE", dist.get_world_size()),
                        ("LOCAL_WORLD_SIZE", dist.get_world_size()), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", 29500)):
        os.environ[name] = str(value)


class Launched(torch.nn.Module):
    """`wrapped`: the library's module; `backward_of`: its backward of a loss; `context`: what it calls a window."""

    def __init__(self, wrapped, backward_of, context=contextlib.nullcontext):
        super().__init__()
        self.wrapped, self.backward_of, self.context = wrapped, backward_of, context

    def forward(self, *arguments):
        return self.wrapped(*arguments)

    def no_sync(self):
        return self.context()

    def backward(self, outputs, ones, retain_graph):
        """A loss is the sum of the outputs."""
        self.backward_of(torch.stack(outputs).sum(), retain_graph=retain_graph)
