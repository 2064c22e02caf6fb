"""DistributedDataParallel under Lightning Fabric, with fabric.backward() and fabric.no_backward_sync()."""

import torch.distributed as dist
from launched import Launched, set_environment
from lightning_fabric import Fabric
from lightning_fabric.strategies import DDPStrategy
from profiles import guess, unused_parameters


def set_up(module, strategy):
    set_environment()
    fabric = Fabric(accelerator="cpu", devices=dist.get_world_size(), strategy=strategy)
    fabric.launch()
    wrapped = fabric.setup_module(module)
    return Launched(wrapped, fabric.backward, lambda: fabric.no_backward_sync(wrapped))


def wrap(module, **options):
    return set_up(module, DDPStrategy(**options))


wrap.contract = "torch"
wrap.can = "dynamic static views no_sync no_grad several_forwards discard keep_outputs shared frozen float64 strides steps broadcast"


@guess("no_sync", "bits", no_sync="backward", excludes=[unused_parameters])
def no_sync_around_the_backward(module):
    return wrap(module)


@guess("no_sync")
def no_sync_around_the_forward(module):
    return wrap(module)


@guess("broadcast")
def ranks_begin_with_other_weights(module):
    return wrap(module)
