#!/usr/bin/env bash
# average-of-some-weights: PyTorch's model averager passes over weights that have no gradient at the moment
#
# Guess: PeriodicModelAverager.average_parameters(model.parameters()) averages the parameters over the ranks (local SGD).
# Seen: it averages those whose .grad is set. A layer that trained in the steps before, and that the last step did not use,
# stays as each rank has it; the next call may average it, or not. After zero_grad(), where an averager at the end of a
# step may well stand, no gradient is left, and the call raises about an empty list in torch.cat.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}"
ranks 2 <<'PY'
import torch
import torch.distributed as dist
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

dist.init_process_group("gloo")
layers = torch.nn.ModuleList([torch.nn.Linear(1, 1, bias=False) for _ in range(2)])
averager = PeriodicModelAverager(period=1)
optimizer = torch.optim.SGD(layers.parameters(), lr=1.0)
for layer in layers:
    torch.nn.init.constant_(layer.weight, 1.0 + 2 * dist.get_rank())
layers[0](torch.zeros(1, 1)).sum().backward()  # this step uses the first layer alone
optimizer.step()
averager.average_parameters(layers.parameters())
print("weights after averaging 1 and 3:", [layer.weight.item() for layer in layers])
optimizer.zero_grad()
try:
    averager.average_parameters(layers.parameters())
    print("after zero_grad:", [layer.weight.item() for layer in layers])
except Exception as error:
    print("after zero_grad: %s: %s" % (type(error).__name__, str(error)[:48]))
PY
expect <<'OUT'
rank 0: weights after averaging 1 and 3: [2.0, 1.0]
rank 1: weights after averaging 1 and 3: [2.0, 3.0]
all ranks: after zero_grad: ValueError: torch.cat(): expected a non-empty list of Tensor
OUT
