#!/usr/bin/env bash
# gradient-of-a-maximum-is-nan: the largest element of a sharded tensor is right, and its gradient is NaN and infinite
#
# Guess: the gradient of x.amax() is 1 at the largest element and 0 elsewhere, for a sharded x as for any other; dividing by
# the largest absolute value, or an infinity norm in a penalty, trains as it does in one process.
# Seen: a rank whose shard does not hold the largest element divides 0 by 0: its whole shard becomes NaN, and the one element
# that has a gradient becomes infinite. Where each shard holds an element that is as large, each gets 1, and in one process
# each gets a half. The values are right, and no error is raised. x.max() and x.amax(0) have the right gradients.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}"
ranks 2 <<'PY'
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,))


def show(name, function, whole=((1.0, 5.0), (2.0, 9.0))):
    sharded = distribute_tensor(torch.tensor(whole), mesh, [Shard(0)]).requires_grad_()
    value = function(sharded)
    value.backward()
    print(name, value.full_tensor().item(), sharded.grad.full_tensor().tolist())


show("amax():", lambda x: x.amax())
show("infinity norm:", lambda x: torch.linalg.vector_norm(x, float("inf")))
show("max():", lambda x: x.max())
show("amax(0).sum():", lambda x: x.amax(0).sum())
show("amax() of two that are as large:", lambda x: x.amax(), ((1.0, 9.0), (2.0, 9.0)))
PY
expect <<'OUT'
all ranks: amax(): 9.0 [[nan, nan], [nan, inf]]
all ranks: infinity norm: 9.0 [[nan, nan], [nan, inf]]
all ranks: max(): 9.0 [[0.0, 0.0], [0.0, 1.0]]
all ranks: amax(0).sum(): 11.0 [[0.0, 0.0], [1.0, 1.0]]
all ranks: amax() of two that are as large: 9.0 [[0.0, 1.0], [0.0, 1.0]]
OUT
