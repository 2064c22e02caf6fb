"""PyTorch's FSDP2: fully_shard over all ranks, with one group of parameters for the whole module, which is sharded anew
after each forward. A window without synchronization is one of backwards."""

import torch.distributed as dist
from profiles import guess, uneven_calls, uneven_use, zeroed_window
from sharded import with_gradients, with_windows
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def shard(module, **options):
    return fully_shard(module, mesh=init_device_mesh("cpu", (dist.get_world_size(),)), **options)


def wrap(module):
    return with_windows(shard(module, reshard_after_forward=True))


wrap.can = "dynamic no_grad no_sync shared frozen steps"
wrap.no_sync = "backward"
wrap.excludes = [uneven_calls, uneven_use, zeroed_window]


@guess("no_grad", "definedness", excludes=[uneven_calls])
def evaluation_keeps_gradients(module):
    return shard(module)


@guess("no_grad", "bits", excludes=[uneven_calls])
def zero_grad_after_an_evaluation(module):
    return with_gradients(shard(module))


@guess("no_grad steps", "the module saw a parameter with the value", excludes=[uneven_calls])
def evaluation_before_the_optimizer_steps(module):
    return with_gradients(shard(module))


@guess("no_sync", "bits", no_sync="backward")
def window_is_zeroed(module):
    return with_windows(shard(module, reshard_after_forward=True))


@guess("no_sync", "bits", no_sync="forward")
def no_sync_around_the_forward(module):
    return with_windows(shard(module, reshard_after_forward=True))


@guess("no_sync", no_sync="backward", excludes=[zeroed_window])
def no_sync_around_the_backward(module):
    return with_windows(shard(module, reshard_after_forward=True))


@guess("broadcast", "the module saw a parameter with the value")
def ranks_begin_with_other_weights(module):
    return shard(module, reshard_after_forward=True)
