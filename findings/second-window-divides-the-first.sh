#!/usr/bin/env bash
# second-window-divides-the-first: each step of a pipeline's schedule divides all gradients that are there
#
# Guess: two calls of schedule.step() without zero_grad() in between add two gradients, as two backwards do.
# Seen: at its end, step() divides every gradient of the stage by the number of microbatches (scale_grads, which is on by
# default), also what was there before: with four microbatches the first window counts a quarter after the second one, and
# a sixteenth after the third. Accumulating over windows, or a loss term whose backward came before, fades away in silence.
# Better: scale_grads=False, and a loss that is divided by the number of microbatches.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}"
ranks 2 <<'PY'
import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

dist.init_process_group("gloo")
rank = dist.get_rank()
x = torch.ones(4, 1)


def stage():
    module = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.ones_(module.weight)
    return module


first, second = stage(), stage()
for window in (1, 2, 3):
    second(first(x)).mean().backward()
    print("one process, after %d windows: %g" % (window, (first, second)[rank].weight.grad.item()))
for count in (2, 4):
    module = stage()
    pipeline = PipelineStage(module, rank, 2, torch.device("cpu"))
    schedule = ScheduleGPipe(pipeline, n_microbatches=count, loss_fn=lambda output, target: output.mean())
    for window in (1, 2, 3):
        schedule.step(x) if rank == 0 else schedule.step(target=x)
        print("%d microbatches, after %d windows: %g" % (count, window, module.weight.grad.item()))
PY
expect <<'OUT'
all ranks: one process, after 1 windows: 1
all ranks: one process, after 2 windows: 2
all ranks: one process, after 3 windows: 3
all ranks: 2 microbatches, after 1 windows: 1
all ranks: 2 microbatches, after 2 windows: 1.5
all ranks: 2 microbatches, after 3 windows: 1.75
all ranks: 4 microbatches, after 1 windows: 1
all ranks: 4 microbatches, after 2 windows: 1.25
all ranks: 4 microbatches, after 3 windows: 1.3125
OUT
