"""PyTorch's `replicate` of _composable/replicate_with_fsdp.py: data parallelism by the code of FSDP2, without shards. The
`replicate` that torch.distributed._composable exports is DistributedDataParallel's reducer."""

import torch.distributed as dist
from profiles import guess, uneven_calls, uneven_use, zeroed_window
from sharded import with_gradients, with_windows
from torch.distributed._composable import replicate_with_fsdp
from torch.distributed.device_mesh import init_device_mesh


def replicated(module):
    world = dist.get_world_size()
    if hasattr(replicate_with_fsdp, "replicate_impl"):  # up to some version before 2.14
        mesh = init_device_mesh("cpu", (world, 1), mesh_dim_names=("replicate", "shard"))
        return replicate_with_fsdp.replicate(module, device_mesh=mesh)
    return replicate_with_fsdp.replicate(module, mesh=init_device_mesh("cpu", (world,)))


def wrap(module):
    return with_windows(replicated(module))


wrap.can = "dynamic no_sync shared frozen steps"
wrap.no_sync = "backward"
wrap.excludes = [uneven_calls, uneven_use, zeroed_window]


@guess("broadcast", "the module saw a parameter with the value")
def ranks_begin_with_other_weights(module):
    return replicated(module)


@guess("no_grad", "definedness", excludes=[uneven_calls])
def evaluation_keeps_gradients(module):
    return replicated(module)


@guess("no_grad steps", "the module saw a parameter with the value", excludes=[uneven_calls])
def evaluation_before_the_optimizer_steps(module):
    return with_gradients(replicated(module))


@guess("no_sync", "bits", no_sync="backward")
def window_is_zeroed(module):
    return with_windows(replicated(module))
