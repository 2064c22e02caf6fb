#!/usr/bin/env bash
# filled-sum-is-a-multiple: writing 3 into the sum of a sharded tensor makes it 3 times the number of ranks
#
# Guess: after s.fill_(3), torch.nn.init.constant_(s, 3) or s[0] = 3 the tensor holds 3, as every other tensor does; or the
# write is refused, as s.add_(1) is for such a sum.
# Seen: a sum over the sharded dimension is a DTensor whose ranks hold parts that are still to be added. Each rank writes 3
# into its part, and reading the tensor adds the parts: 9 on three ranks. torch.fill(s, 3) without the underscore
# gives 3, and so does fill_ of a mean or a maximum, whose parts are combined otherwise. No error is raised.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}"
ranks 3 <<'PY'
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
whole = torch.arange(12.0).reshape(6, 2)


def sums():
    return distribute_tensor(whole, mesh, [Shard(0)]).sum(0)


def write(sum_of_all):
    sum_of_all[0] = 3.0
    return sum_of_all


def added_in_place():
    try:
        sums().add_(1.0)
    except RuntimeError:
        return "raises"
    return "does not raise"


print("the sum:", sums().full_tensor().tolist())
print("fill_:", sums().fill_(3.0).full_tensor().tolist())
print("constant_:", torch.nn.init.constant_(sums(), 3.0).full_tensor().tolist())
print("[0] = 3:", write(sums()).full_tensor().tolist())
print("fill:", torch.fill(sums(), 3.0).full_tensor().tolist())
print("fill_ of a maximum:", distribute_tensor(whole, mesh, [Shard(0)]).amax(0).fill_(3.0).full_tensor().tolist())
print("add_:", added_in_place())
PY
expect <<'OUT'
all ranks: the sum: [30.0, 36.0]
all ranks: fill_: [9.0, 9.0]
all ranks: constant_: [9.0, 9.0]
all ranks: [0] = 3: [9.0, 36.0]
all ranks: fill: [3.0, 3.0]
all ranks: fill_ of a maximum: [3.0, 3.0]
all ranks: add_: raises
OUT
