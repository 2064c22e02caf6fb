#!/usr/bin/env bash
# sharded-noise-repeats: on CPUs a sharded tensor is filled with the same random numbers in each shard
#
# Guess: with one seed on all ranks, which DTensor wants, initializing a sharded parameter or dropping elements of a
# sharded activation gives the numbers of one tensor: other ones in each shard.
# Seen: every shard draws from the start of the same stream, so that the rows of one shard are copies of those of the
# other, and a dropout mask repeats; half of a layer's neurons begin as copies of the other half. DTensor keeps an offset
# for each shard in the generators of GPUs (so its source says), and on CPUs it neither does nor warns.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}"
ranks 2 <<'PY'
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,))
torch.manual_seed(1)
rows = lambda tensor: [[round(value, 3) for value in row] for row in tensor.full_tensor().tolist()]
tensor = distribute_tensor(torch.zeros(4, 2), mesh, [Shard(0)])
print("uniform_:", rows(tensor.uniform_()))
print("dropout:", rows(torch.nn.functional.dropout(torch.ones_like(tensor), 0.5)))
with torch.device("meta"):
    module = torch.nn.Linear(2, 4, bias=False)
fully_shard(module, mesh=mesh)
module.to_empty(device="cpu")
module.reset_parameters()
print("FSDP2, reset_parameters:", rows(module.weight.detach()))
PY
expect <<'OUT'
all ranks: uniform_: [[0.758, 0.279], [0.403, 0.735], [0.758, 0.279], [0.403, 0.735]]
all ranks: dropout: [[2.0, 2.0], [0.0, 2.0], [2.0, 2.0], [0.0, 2.0]]
all ranks: FSDP2, reset_parameters: [[0.258, -0.276], [-0.052, -0.064], [0.258, -0.276], [-0.052, -0.064]]
OUT
