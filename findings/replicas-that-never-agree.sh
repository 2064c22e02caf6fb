#!/usr/bin/env bash
# replicas-that-never-agree: two replicas of HSDP that begin with other weights keep them for good
#
# Guess: where fully_shard replicates (a mesh of two dimensions, HSDP), the replicas are made equal at the start, as DDP
# makes them, or are compared.
# Seen: nothing looks at them. With a seed for each rank, as some loaders set it, each replica has its own weights, gets
# the same mean gradients, and stays apart by what it was apart in the beginning. Losses look fine; a checkpoint has the
# weights of one replica.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}"
ranks 2 <<'PY'
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicate", "shard"))
for name, wrap in (("DDP", DistributedDataParallel), ("HSDP", lambda module: fully_shard(module, mesh=mesh))):
    module = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(module.weight, 10.0 * (1 + dist.get_rank()))
    wrapped = wrap(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    for _ in range(3):
        optimizer.zero_grad()
        wrapped(torch.full((1, 1), 1.0 + 2 * dist.get_rank())).sum().backward()
        optimizer.step()
    weight = getattr(module.weight, "full_tensor", lambda: module.weight)()
    print("%s: weight after three steps %g" % (name, weight.item()))
PY
expect <<'OUT'
all ranks: DDP: weight after three steps 4
rank 0: HSDP: weight after three steps 4
rank 1: HSDP: weight after three steps 14
OUT
