"""PyTorch's FSDP2 on a mesh of two dimensions: two replicas, or as many as there are ranks, each sharded over the others."""

import torch.distributed as dist
from profiles import guess, once_for_group, uneven_calls, uneven_use, zeroed_window
from sharded import with_windows
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


@once_for_group
def mesh():
    world = dist.get_world_size()
    replicas = min(world, 2)
    return init_device_mesh("cpu", (replicas, world // replicas), mesh_dim_names=("replicate", "shard"))


def shard(module, **options):
    return fully_shard(module, mesh=mesh(), **options)


def wrap(module):
    return with_windows(shard(module, reshard_after_forward=True))


wrap.can = "dynamic no_grad no_sync shared frozen steps"
wrap.no_sync = "backward"
wrap.excludes = [uneven_calls, uneven_use, zeroed_window]


@guess("broadcast", "the module saw a parameter with the value")
def ranks_begin_with_other_weights(module):
    return shard(module, reshard_after_forward=True)


@guess("no_sync", "bits", no_sync="backward")
def window_is_zeroed(module):
    return with_windows(shard(module, reshard_after_forward=True))
