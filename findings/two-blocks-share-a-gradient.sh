#!/usr/bin/env bash
# two-blocks-share-a-gradient: under FSDP2 two ranks that use different blocks of equal shape compute with a mixture of both
#
# Guess: where rank 0 uses one block of a model and rank 1 another one (experts, tasks, a condition on the data), FSDP2
# raises, or each block gets the gradient of the rank that used it.
# Seen: nothing is raised, as the collectives of the two ranks fit each other. Both gather rank 0's half of a and rank 1's
# half of b, and compute with that. The gradients of both blocks are added: what rank 0 owns of a, and rank 1 of b, gets
# the sum of both means, and the other halves of a and b have no gradient.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}"
ranks 2 <<'PY'
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")


class Blocks(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(1, 2, bias=False), torch.nn.Linear(1, 2, bias=False)
        torch.nn.init.constant_(self.a.weight, 1.0)
        torch.nn.init.constant_(self.b.weight, 10.0)

    def forward(self, block, data):
        return getattr(self, block)(data)


def shard(module):
    for block in module.children():
        fully_shard(block, reshard_after_forward=True)
    return fully_shard(module, reshard_after_forward=True)



for name, wrap in (
    ("DDP", lambda module: DistributedDataParallel(module, find_unused_parameters=True)),
    ("FSDP2", shard),
):
    module = Blocks()
    wrapped = wrap(module)
    data = 1.0 + 3 * dist.get_rank()
    output = wrapped("ab"[dist.get_rank()], torch.full((1, 1), data))
    output.sum().backward()
    print("%s: weights of the forward %s" % (name, (output[0] / data).tolist()))
    gradients = []
    for block in (module.a, module.b):
        gradient = block.weight.grad
        local = getattr(gradient, "to_local", lambda gradient=gradient: gradient)()
        gradients.append("none" if gradient is None else local.flatten().tolist())
    print("%s: own part of the gradient of a %s, of b %s" % (name, *gradients))
PY
expect <<'OUT'
rank 0: DDP: weights of the forward [1.0, 1.0]
rank 1: DDP: weights of the forward [10.0, 10.0]
all ranks: DDP: own part of the gradient of a [0.5, 0.5], of b [2.0, 2.0]
all ranks: FSDP2: weights of the forward [1.0, 10.0]
rank 0: FSDP2: own part of the gradient of a [2.5], of b none
rank 1: FSDP2: own part of the gradient of a none, of b [2.5]
OUT
