"""PyTorch's FSDP2 (fully_shard), with one group for the whole module. The gradients are gathered before they are
compared, as every rank has a part of each. Parameters are sharded anew after each forward: in between the module has
others, which have no gradients. A forward gathers the parameters, and its backward reduces, so all ranks need the same
forwards in a step: no `no_grad`, no `several_forwards`."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

if not hasattr(torch.cpu.Stream, "record_event"):  # as in 2.6.0
    raise ImportError("this PyTorch's FSDP2 does not run on CPUs: its torch.cpu.Stream has no record_event")


def wrap(module):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return fully_shard(module, mesh=mesh, reshard_after_forward=True)


wrap.can = "shared frozen"
