"""PyTorch's FSDP2 (fully_shard), with one group for the whole module. The gradients are gathered before they are
compared, as every rank has a part of each."""

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def wrap(module):
    return fully_shard(module, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))


wrap.can = "no_grad several_forwards shared frozen"
