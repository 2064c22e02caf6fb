"""FSDP2 under Lightning Fabric's ModelParallelStrategy, with fabric.backward() and fabric.no_backward_sync()."""

import torch.distributed as dist
from fabric_ddp import set_up
from lightning_fabric.strategies import ModelParallelStrategy
from profiles import guess, uneven_calls, uneven_use, zeroed_window
from sharded import Gradients
from torch.distributed.fsdp import fully_shard


def parallelize(module, mesh):
    return fully_shard(module, mesh=mesh["data_parallel"], reshard_after_forward=True)


def wrap(module):
    strategy = ModelParallelStrategy(parallelize, data_parallel_size=dist.get_world_size(), tensor_parallel_size=1)
    wrapped = set_up(module, strategy)
    wrapped.gradient = Gradients(module)
    return wrapped


wrap.can = "dynamic no_grad no_sync shared frozen steps"
wrap.no_sync = "backward"
wrap.excludes = [uneven_calls, uneven_use, zeroed_window]


@guess("no_sync", "bits", no_sync="forward", excludes=[zeroed_window])
def no_sync_around_the_forward(module):
    return wrap(module)


@guess("no_sync", no_sync="backward", excludes=[zeroed_window])
def no_sync_around_the_backward(module):
    return wrap(module)


@guess("no_sync", "bits", no_sync="backward")
def window_is_zeroed(module):
    return wrap(module)


@guess("broadcast", "the module saw a parameter with the value")
def ranks_begin_with_other_weights(module):
    return wrap(module)
