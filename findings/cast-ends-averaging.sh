#!/usr/bin/env bash
# cast-ends-averaging: casting the model after DDP was constructed ends the averaging, without an error
#
# Guess: wrapped.half() or wrapped.double() is either an error or keeps the gradients averaged, as wrapped.float() does.
# Seen: DDP's hooks hang on the node that accumulates a parameter's gradient. A cast to another dtype makes autograd
# build a new node, on which no hook is. Each rank keeps its own gradient from then on, forward and backward raise
# nothing, and the replicas drift apart. A cast to the dtype that the parameters have changes nothing.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}"
ranks 2 <<'PY'
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
for name in ("float", "double", "half", "bfloat16"):
    wrapped = DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))
    getattr(wrapped, name)()
    for step in range(3):
        wrapped.zero_grad()
        data = torch.full((1, 1), 1.0 + 2 * dist.get_rank()).to(wrapped.module.weight.dtype)
        wrapped(data).sum().backward()
    print("after %s(): gradient %g, mean of the ranks 2" % (name, wrapped.module.weight.grad.item()))
PY
expect <<'OUT'
all ranks: after float(): gradient 2, mean of the ranks 2
rank 0: after double(): gradient 1, mean of the ranks 2
rank 1: after double(): gradient 3, mean of the ranks 2
rank 0: after half(): gradient 1, mean of the ranks 2
rank 1: after half(): gradient 3, mean of the ranks 2
rank 0: after bfloat16(): gradient 1, mean of the ranks 2
rank 1: after bfloat16(): gradient 3, mean of the ranks 2
OUT
