#!/usr/bin/env bash
# one-word-two-windows: Lightning Fabric's no_backward_sync means the forward for DDP, and the backward for FSDP2
#
# Guess: no_backward_sync() around the backward alone, as its name says, leaves the gradients of that backward local, with
# each strategy.
# Seen: with DDP the forward decides, so that a backward inside of it is averaged all the same, and a backward after it
# is not, if the forward was inside. With FSDP2 the backward decides. A loop that computes the loss outside and calls
# fabric.backward inside accumulates with one strategy and synchronizes with the other; both are without an error.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}" lightning-fabric==2.6.6 lightning-utilities==0.15.3 packaging==26.4
ranks 2 <<'PY'
import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies import DDPStrategy, ModelParallelStrategy
from torch.distributed.fsdp import fully_shard


def sharded(module, mesh):
    fully_shard(module, mesh=mesh["data_parallel"])
    return module


def is_averaged(strategy, forward_inside, backward_inside):
    fabric = Fabric(accelerator="cpu", devices=2, strategy=strategy)
    fabric.launch()
    module = fabric.setup_module(torch.nn.Linear(1, 2, bias=False))
    data = torch.full((1, 1), 1.0 + 2 * fabric.global_rank)
    with fabric.no_backward_sync(module, enabled=forward_inside):
        loss = module(data).sum()
        if backward_inside and forward_inside:
            fabric.backward(loss)
    if not (backward_inside and forward_inside):
        with fabric.no_backward_sync(module, enabled=backward_inside):
            fabric.backward(loss)
    gradient = module.weight.grad
    return gradient is not None and abs(getattr(gradient, "full_tensor", lambda: gradient)()[0, 0].item() - 2) < 1e-6


for name, make in (
    ("DDP", DDPStrategy),
    ("FSDP2", lambda: ModelParallelStrategy(sharded, data_parallel_size=2, tensor_parallel_size=1)),
):
    for forward_inside in (False, True):
        for backward_inside in (False, True):
            print(
                "%s, forward %s, backward %s: %s"
                % (
                    name,
                    "inside" if forward_inside else "outside",
                    "inside" if backward_inside else "outside",
                    "averaged" if is_averaged(make(), forward_inside, backward_inside) else "not averaged",
                )
            )
PY
expect <<'OUT'
all ranks: DDP, forward outside, backward outside: averaged
all ranks: DDP, forward outside, backward inside: averaged
all ranks: DDP, forward inside, backward outside: not averaged
all ranks: DDP, forward inside, backward inside: not averaged
all ranks: FSDP2, forward outside, backward outside: averaged
all ranks: FSDP2, forward outside, backward inside: not averaged
all ranks: FSDP2, forward inside, backward outside: averaged
all ranks: FSDP2, forward inside, backward inside: not averaged
OUT
