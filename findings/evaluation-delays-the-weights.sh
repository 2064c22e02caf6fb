#!/usr/bin/env bash
# evaluation-delays-the-weights: an evaluation between backward and step makes FSDP2 compute with the weights of the step before
#
# Guess: a forward under no_grad between backward() and optimizer.step() changes nothing: the next forward computes with
# the weights that the step has made, as without the evaluation and as with DDP.
# Seen: by default (reshard_after_forward=None) the root module keeps the gathered weights of the evaluation. The step
# changes the shards, and the next forward computes with the old, gathered ones; its backward gathers anew. So each loss and
# each gradient of the loop belongs to weights that are one step old. With reshard_after_forward=True it is as guessed.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}"
ranks 2 <<'PY'
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")


def losses(wrap, evaluates):
    module = torch.nn.Linear(2, 2, bias=False)
    torch.nn.init.constant_(module.weight, 4.0)
    wrapped = wrap(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    data, seen = torch.ones(1, 2), []
    for _ in range(4):
        loss = wrapped(data).mean()
        seen.append("%g" % loss.item())
        optimizer.zero_grad()
        loss.backward()
        if evaluates:
            with torch.no_grad():
                wrapped(data)
        optimizer.step()
    return " ".join(seen)


for name, wrap in (
    ("DDP", DistributedDataParallel),
    ("FSDP2", fully_shard),
    ("FSDP2 with reshard_after_forward=True", lambda module: fully_shard(module, reshard_after_forward=True)),
):
    for evaluates in (False, True):
        print("%s, %s evaluation: losses %s" % (name, "with an" if evaluates else "without", losses(wrap, evaluates)))
PY
expect <<'OUT'
all ranks: DDP, without evaluation: losses 8 7 6 5
all ranks: DDP, with an evaluation: losses 8 7 6 5
all ranks: FSDP2, without evaluation: losses 8 7 6 5
all ranks: FSDP2, with an evaluation: losses 8 8 7 6
all ranks: FSDP2 with reshard_after_forward=True, without evaluation: losses 8 7 6 5
all ranks: FSDP2 with reshard_after_forward=True, with an evaluation: losses 8 7 6 5
OUT
