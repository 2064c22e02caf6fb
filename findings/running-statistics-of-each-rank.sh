#!/usr/bin/env bash
# running-statistics-of-each-rank: under FSDP2 buffers differ between ranks, and a checkpoint keeps one rank's
#
# Guess: FSDP2 handles buffers as DDP does, which broadcasts rank 0's at each forward; the model is one model.
# Seen: FSDP2 leaves buffers alone. Each rank normalizes its evaluation by the statistics of its own data, the full state
# dict has those of whoever reads it, and a checkpoint by DCP those of one rank. So evaluating right after saving and
# right after loading gives different numbers on all ranks but that one.
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
for name, wrap in (("DDP", DistributedDataParallel), ("FSDP2", fully_shard)):
    module = torch.nn.BatchNorm1d(1, momentum=1.0)
    wrapped = wrap(module)
    for data in (torch.tensor([[0.0], [2.0]]), torch.tensor([[4.0], [6.0]])):
        wrapped(data + 10 * dist.get_rank()).sum().backward()
    with torch.no_grad():
        wrapped.train()(data + 10 * dist.get_rank())
    print("%s: running mean %g" % (name, module.running_mean.item()))
state = get_model_state_dict(module)
checkpoint.save(state, checkpoint_id=sys.argv[1])
checkpoint.load(state, checkpoint_id=sys.argv[1])
print("FSDP2, after a checkpoint: running mean %g" % state["running_mean"].item())
PY
expect <<'OUT'
OUT
