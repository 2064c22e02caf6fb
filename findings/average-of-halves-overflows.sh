#!/usr/bin/env bash
# average-of-halves-overflows: the mean of two float16 numbers is infinite, or not, by who computes it
#
# Guess: the mean of 60000 and 60000 is 60000 in float16, by every way that a library offers.
# Seen: torch's ReduceOp.AVG over Gloo and the functional all-reduce "avg" add in float16 first, and give infinity;
# DDP divides each gradient before the sum, and FSDP2 divides between two steps, so both give 60000. Code that moves
# from DDP to an all-reduce of its own gets infinities that its loss scaler then takes for an overflow of the backward.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}"
ranks 2 <<'PY'
import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import all_reduce
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
value = torch.full((2, 1), 60000.0, dtype=torch.float16)

own = value.clone()
dist.all_reduce(own, op=dist.ReduceOp.AVG)
print("ReduceOp.AVG:", own[0].item())
print("functional avg:", all_reduce(value, "avg", dist.group.WORLD)[0].item())


def gradient_of(wrap):
    module = torch.nn.Linear(1, 2, bias=False).half()
    wrapped = wrap(module) or module
    (wrapped(torch.ones(1, 1, dtype=torch.float16)) * 60000).sum().backward()
    gradient = module.weight.grad
    return getattr(gradient, "full_tensor", lambda: gradient)()[0].item()


print("DDP:", gradient_of(torch.nn.parallel.DistributedDataParallel))
print("FSDP2:", gradient_of(lambda module: fully_shard(module) and None))
PY
expect <<'OUT'
all ranks: ReduceOp.AVG: inf
all ranks: functional avg: inf
all ranks: DDP: 60000.0
all ranks: FSDP2: 60000.0
OUT
