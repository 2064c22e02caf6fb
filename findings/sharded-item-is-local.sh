#!/usr/bin/env bash
# sharded-item-is-local: item() of a sharded tensor's sum is one rank's part, and item() of its variance is not
#
# Guess: a DTensor is the global tensor, so that tensor.sum().item() and tensor.norm().item() are the global numbers on
# every rank, or an error.
# Seen: where the result is still pending between the ranks (sum, max, norm, and the mean if the shards are even), item()
# and int() return this rank's part, silently and with another value on each rank. Where the operation needed a
# reduction itself (any, argmax, var, and the mean if the shards are uneven) they return the global number. A logged
# gradient norm, and a decision such as "if norm.item() > limit", then differ between the ranks.
# Better: tensor.sum().full_tensor().item().
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}"
ranks 2 <<'PY'
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,))
for values in ([1.0, 2.0, 3.0, 6.0], [1.0, 2.0, 6.0]):
    tensor = distribute_tensor(torch.tensor(values), mesh, [Shard(0)])
    print("values:", values)
    for name in ("sum", "max", "norm", "mean", "var", "argmax"):
        result = getattr(tensor, name)()
        print("  %s().item(): %.3f, full_tensor(): %.3f" % (name, result.item(), result.full_tensor().item()))
    print("  (tensor == 6).any().item():", (tensor == 6).any().item())
    print("  int(sum()):", int(tensor.sum()), " bool(sum() > 5):", bool(tensor.sum() > 5))
PY
expect <<'OUT'
all ranks: values: [1.0, 2.0, 3.0, 6.0]
rank 0:   sum().item(): 3.000, full_tensor(): 12.000
rank 1:   sum().item(): 9.000, full_tensor(): 12.000
rank 0:   max().item(): 2.000, full_tensor(): 6.000
rank 1:   max().item(): 6.000, full_tensor(): 6.000
rank 0:   norm().item(): 2.236, full_tensor(): 7.071
rank 1:   norm().item(): 6.708, full_tensor(): 7.071
rank 0:   mean().item(): 1.500, full_tensor(): 3.000
rank 1:   mean().item(): 4.500, full_tensor(): 3.000
all ranks:   var().item(): 4.667, full_tensor(): 4.667
all ranks:   argmax().item(): 3.000, full_tensor(): 3.000
all ranks:   (tensor == 6).any().item(): True
rank 0:   int(sum()): 3  bool(sum() > 5): True
rank 1:   int(sum()): 9  bool(sum() > 5): True
all ranks: values: [1.0, 2.0, 6.0]
rank 0:   sum().item(): 3.000, full_tensor(): 9.000
rank 1:   sum().item(): 6.000, full_tensor(): 9.000
rank 0:   max().item(): 2.000, full_tensor(): 6.000
rank 1:   max().item(): 6.000, full_tensor(): 6.000
rank 0:   norm().item(): 2.236, full_tensor(): 6.403
rank 1:   norm().item(): 6.000, full_tensor(): 6.403
all ranks:   mean().item(): 3.000, full_tensor(): 3.000
all ranks:   var().item(): 7.000, full_tensor(): 7.000
all ranks:   argmax().item(): 2.000, full_tensor(): 2.000
all ranks:   (tensor == 6).any().item(): True
rank 0:   int(sum()): 3  bool(sum() > 5): True
rank 1:   int(sum()): 6  bool(sum() > 5): True
OUT
