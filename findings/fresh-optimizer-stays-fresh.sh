#!/usr/bin/env bash
# fresh-optimizer-stays-fresh: a checkpoint loads nothing into an optimizer that has not made a step
#
# Guess: torch.distributed.checkpoint.load into {"optimizer": optimizer.state_dict()} of a new Adam, followed by
# load_state_dict, restores the moments, as torch.load does; or it raises, as it does where the checkpoint lacks a key.
# Seen: load looks for what the given dictionary has, and the state of a new optimizer is an empty dictionary. What is in
# the checkpoint beside that is passed over, without a warning: the learning rate comes back, the moments and the count of
# steps do not. The resumed run's first step is that of a new Adam. An optimizer that has made a step is restored in full.
# Better: get_optimizer_state_dict and set_optimizer_state_dict (but see saving-changes-the-first-step).
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}"
ranks 2 <<'PY'
import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

dist.init_process_group("gloo")


def train(model, optimizer, factor):
    optimizer.zero_grad()
    (model(torch.ones(1, 1)) * factor).sum().backward()
    optimizer.step()


def new(learning_rate):
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.ones_(model.weight)
    return model, torch.optim.Adam(model.parameters(), lr=learning_rate)


model, optimizer = new(0.1)
for _ in range(3):
    train(model, optimizer, 1)
folder = os.path.join(os.getcwd(), "saved")
checkpoint.save({"optimizer": optimizer.state_dict()}, checkpoint_id=folder)
before = model.weight.item()
train(model, optimizer, -1)
print("step after the checkpoint: %.4f" % (model.weight.item() - before))


def resume(name, learning_rate, prepare=None, through=None):
    model, optimizer = new(learning_rate)
    if prepare:
        prepare(model, optimizer)
    state = {"optimizer": get_optimizer_state_dict(model, optimizer) if through else optimizer.state_dict()}
    if through:
        checkpoint.load(state, checkpoint_id=through)
        set_optimizer_state_dict(model, optimizer, state["optimizer"])
    else:
        checkpoint.load(state, checkpoint_id=folder)
        optimizer.load_state_dict(state["optimizer"])
    count = [int(one["step"]) for one in optimizer.state.values()]
    before = model.weight.item()
    train(model, optimizer, -1)
    rate = optimizer.param_groups[0]["lr"]
    print("%s: learning rate %g, steps %s, next step %.4f" % (name, rate, count, model.weight.item() - before))


resume("into a new optimizer", 0.5)
resume("into one that has made a step", 0.5, lambda model, optimizer: train(model, optimizer, 1))
model, optimizer = new(0.1)
for _ in range(3):
    train(model, optimizer, 1)
checkpoint.save({"optimizer": get_optimizer_state_dict(model, optimizer)}, checkpoint_id=folder + "-by-function")
resume("by get_ and set_optimizer_state_dict", 0.5, through=folder + "-by-function")
PY
expect <<'OUT'
all ranks: step after the checkpoint: -0.0418
all ranks: into a new optimizer: learning rate 0.1, steps [], next step 0.1000
all ranks: into one that has made a step: learning rate 0.1, steps [3], next step -0.0418
all ranks: by get_ and set_optimizer_state_dict: learning rate 0.1, steps [3], next step -0.0418
OUT
