#!/usr/bin/env bash
# reduce-overwrites-other-ranks: torch's reduce to rank 0 leaves partial sums in the tensors of other ranks
#
# Guess: dist.reduce(tensor, dst=0) changes the tensor of rank 0 and leaves those of the other ranks alone.
# Seen: over Gloo some other ranks find sums of some ranks in theirs, and others find their own value, depending on the
# rank and on the number of ranks. With ReduceOp.AVG they find such a sum divided by the number of ranks, also those
# whose own value was not added to anything. A metric that is reduced for rank 0's log and used on each rank is wrong.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}"
ranks 4 <<'PY'
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for name in ("SUM", "AVG", "MAX"):
    tensor = torch.tensor([10.0 ** dist.get_rank()])
    dist.reduce(tensor, dst=0, op=getattr(dist.ReduceOp, name))
    print("%s: had %g, has %g" % (name, 10.0 ** dist.get_rank(), tensor.item()))
PY
expect <<'OUT'
OUT
