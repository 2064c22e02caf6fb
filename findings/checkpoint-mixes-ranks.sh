#!/usr/bin/env bash
# checkpoint-mixes-ranks: what is not a DTensor comes back from one rank, and not from the same rank for each key
#
# Guess: what each rank puts into torch.distributed.checkpoint under a key it gets back (as with the state of its random
# number generator or its data loader), or all get rank 0's.
# Seen: a plain tensor or object of a key is taken for the same on all ranks, and written once; the work of writing is
# spread over the ranks by size. So after loading, every rank has the same value, which is one rank's for one key and
# another rank's for the next: here the generators, the counter and a list of rank 1, and the tensor of rank 0. After a
# resume all ranks draw the same random numbers. No warning is given, in saving or in loading.
# Better: put the rank into the key of what differs between ranks.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}"
checkpoint=$scratch/checkpoint
ranks 2 "$checkpoint" <<'PY'
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
state = {"tensor": torch.tensor([rank]), "counter": rank, "list": [rank], "generator": torch.get_rng_state()}
checkpoint.save(state, checkpoint_id=sys.argv[1])
loaded = {"tensor": torch.tensor([-1]), "counter": -1, "list": [-1], "generator": torch.get_rng_state()}
checkpoint.load(loaded, checkpoint_id=sys.argv[1])
torch.set_rng_state(loaded["generator"])
print("tensor", loaded["tensor"].item(), "counter", loaded["counter"], "list", loaded["list"])
mine, other = [torch.rand(1, generator=torch.Generator().manual_seed(seed)).item() for seed in (0, 1)]
print("the random number that follows is that of rank", [mine, other].index(torch.rand(1).item()))
PY
expect <<'OUT'
all ranks: tensor 0 counter 1 list [1]
all ranks: the random number that follows is that of rank 1
OUT
