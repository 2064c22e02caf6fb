#!/usr/bin/env bash
# sharded-lbfgs-is-another-optimizer: ZeroRedundancyOptimizer takes any optimizer, and changes what some compute
#
# Guess: sharding an optimizer's state changes memory, not numbers; where it would, it is refused.
# Seen: each rank runs the optimizer on its own part of the parameters. That is the same for Adam. LBFGS fits one
# curvature to all parameters together, so that two ranks run two fits that do not know of each other: after five steps
# the loss is hundreds of times higher than without sharding, and no error or warning says so.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}"
ranks 2 <<'PY'
import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer

dist.init_process_group("gloo")


def loss_after_five_steps(make):
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    x, y = torch.randn(8, 3), torch.randn(8, 1)
    optimizer = make(module.parameters())

    def closure():
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(module(x), y)
        loss.backward()
        return loss

    for _ in range(5):
        optimizer.step(closure)
    return torch.nn.functional.mse_loss(module(x), y).item()


for name, kind, options in (("Adam", torch.optim.Adam, {"lr": 0.1}), ("LBFGS", torch.optim.LBFGS, {"max_iter": 5})):
    print("%s: %.4f" % (name, loss_after_five_steps(lambda p: kind(p, **options))))
    print("%s, sharded: %.4f" % (name, loss_after_five_steps(lambda p: ZeroRedundancyOptimizer(p, kind, **options))))
PY
expect <<'OUT'
all ranks: Adam: 0.3474
all ranks: Adam, sharded: 0.3474
all ranks: LBFGS: 0.0016
all ranks: LBFGS, sharded: 0.5375
OUT
