#!/usr/bin/env bash
# full-tensor-has-one-ranks-gradient: the gradient through full_tensor() is not summed over the ranks
#
# Guess: what a rank computes from the gathered tensor has a gradient on each rank, and the backward of a gather is a
# reduce-scatter: the shards get the sum of the ranks' gradients.
# Seen: full_tensor() and to_local() assume in the backward that all ranks have the same gradient. Each shard gets its
# part of its own rank's gradient: with one loss per rank (as in data parallelism) rank 0's rows are trained on rank 0's
# batch alone, and rank 1's rows on rank 1's. Nothing is raised. to_local() has grad_placements against it,
# full_tensor(grad_placements=[Partial()]) likewise.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}"
ranks 2 <<'PY'
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,))
factor = 1.0 + dist.get_rank()
for name, options in (("full_tensor()", {}), ("full_tensor(grad_placements=[Partial()])", {"grad_placements": [Partial()]})):
    weight = torch.nn.Parameter(distribute_tensor(torch.ones(2), mesh, [Shard(0)]))
    (weight.full_tensor(**options) * factor).sum().backward()
    print(name + ":", weight.grad.full_tensor().tolist(), "of 1 + 2 =", 3.0)
weight = torch.nn.Parameter(distribute_tensor(torch.ones(1), mesh, [Replicate()]))
(weight.to_local() * factor).sum().backward()
print("to_local() of a replicated one:", weight.grad.to_local().tolist())
PY
expect <<'OUT'
all ranks: full_tensor(): [1.0, 2.0] of 1 + 2 = 3.0
all ranks: full_tensor(grad_placements=[Partial()]): [3.0, 3.0] of 1 + 2 = 3.0
rank 0: to_local() of a replicated one: [1.0]
rank 1: to_local() of a replicated one: [2.0]
OUT
