"""PyTorch's process group over Gloo."""
import importlib.metadata
import os
import sys

import numpy

sys.path.pop(0)  # this folder, where "torch" is this file


class Adapter:
    collectives = ("all_reduce", "reduce")
    dtypes = ("float32", "float64", "float16", "bfloat16")

    @classmethod
    def version(cls):
        try:
            return importlib.metadata.version("torch").split("+")[0]
        except importlib.metadata.PackageNotFoundError:
            import torch
            return torch.__version__.split("+")[0].split("a")[0]

    @classmethod
    def needs(cls, version):
        return ["torch==%s" % version, "numpy"]

    def __init__(self):
        import torch
        import torch.distributed
        self.torch = torch
        self.rank, self.ranks = int(os.environ["LOCKSTEP_RANK"]), int(os.environ["LOCKSTEP_RANKS"])
        torch.distributed.init_process_group("gloo", init_method="tcp://127.0.0.1:%s" % os.environ["LOCKSTEP_PORT"], rank=self.rank,
                                             world_size=self.ranks)

    def new_group(self):
        return self.torch.distributed.new_group()

    def free_group(self, group):
        self.torch.distributed.destroy_process_group(group)

    def sum_of(self, collective, group, given, dtype, root):
        tensor = self.torch.from_numpy(given.view(numpy.int16) if given.dtype == numpy.uint16 else given)
        tensor = tensor.view(getattr(self.torch, dtype)).clone()
        if collective == "all_reduce":
            self.torch.distributed.all_reduce(tensor, group=group)
        else:
            self.torch.distributed.reduce(tensor, dst=root, group=group)
        bits = tensor.view(self.torch.int16).numpy() if given.dtype == numpy.uint16 else tensor.numpy()
        return 0, None if collective == "reduce" and self.rank != root else bits

    def close(self):
        self.torch.distributed.destroy_process_group()
