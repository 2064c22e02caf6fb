#!/usr/bin/env bash
# running-statistics-of-each-rank: under FSDP2 buffers differ between ranks, and a checkpoint keeps one rank's
#
# Guess: FSDP2 handles buffers as DDP does, which gives all ranks those of rank 0 before each forward in training; the
# model is one model, but for the last update.
# Seen: FSDP2 leaves buffers alone. Each rank normalizes its evaluation by the statistics of its own data, and a checkpoint
# by torch.distributed.checkpoint has those of one rank. So evaluating right after saving, and right after loading, gives
# different numbers on all ranks but that one.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}"
ranks 2 "$scratch/checkpoint" <<'PY'
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
data = torch.tensor([[0.0], [2.0]]) + 10 * dist.get_rank()  # the mean is 1 on rank 0, and 11 on rank 1
for name, wrap in (("DDP", DistributedDataParallel), ("FSDP2", fully_shard)):
    module = torch.nn.BatchNorm1d(1)
    wrapped = wrap(module)
    for step in range(60):
        wrapped(data).sum().backward()
    print("%s: running mean %.2f" % (name, module.running_mean.item()))
state = get_model_state_dict(module)
checkpoint.save(state, checkpoint_id=sys.argv[1])
checkpoint.load(state, checkpoint_id=sys.argv[1])
print("FSDP2, after a checkpoint: running mean %.2f" % state["running_mean"].item())
PY
expect <<'OUT'
rank 0: DDP: running mean 1.00
rank 1: DDP: running mean 2.00
rank 0: FSDP2: running mean 1.00
rank 1: FSDP2: running mean 10.98
all ranks: FSDP2, after a checkpoint: running mean 10.98
OUT
