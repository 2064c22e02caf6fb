#!/usr/bin/env bash
# saving-changes-the-first-step: reading an optimizer's state for a checkpoint changes what it does next
#
# Guess: get_optimizer_state_dict() reads. A checkpoint that is written before the first step changes no training.
# Seen: where the optimizer has no state yet, the function makes it take a step with zero gradients and a learning rate
# of 0, so that there is something to save. Adam's count of steps is then 1 before training begins, and its first real
# step is shorter by a quarter here; SGD with momentum and dampening takes half of its first step. A run that saves at
# step 0 differs from one that does not.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}"
program <<'PY'
import torch
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict


def first_step(make, saves):
    module = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(module.weight)
    optimizer = make(module.parameters())
    if saves:
        get_optimizer_state_dict(module, optimizer)
    (2 * module(torch.ones(1, 1))).sum().backward()
    optimizer.step()
    count = optimizer.state[module.weight].get("step")
    return "weight %.4f%s" % (module.weight.item(), "" if count is None else ", steps counted %d" % count)


for name, make in (
    ("SGD, momentum 0.5, dampening 0.5", lambda p: torch.optim.SGD(p, lr=1.0, momentum=0.5, dampening=0.5)),
    ("Adam", lambda p: torch.optim.Adam(p, lr=1.0)),
):
    for saves in (False, True):
        print("%s, %s: %s" % (name, "state saved before" if saves else "not saved", first_step(make, saves)))
PY
expect <<'OUT'
SGD, momentum 0.5, dampening 0.5, not saved: weight -2.0000
SGD, momentum 0.5, dampening 0.5, state saved before: weight -1.0000
Adam, not saved: weight -1.0000, steps counted 1
Adam, state saved before: weight -0.7441, steps counted 2
OUT
