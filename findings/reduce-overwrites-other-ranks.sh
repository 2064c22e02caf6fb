#!/usr/bin/env bash
# reduce-overwrites-other-ranks: torch's reduce to rank 0 leaves partial sums in the tensors of other ranks
#
# Guess: dist.reduce(tensor, dst=0) changes the tensor of rank 0 and leaves those of the other ranks alone.
# Seen: over Gloo each rank finds what it passed on: rank 1 of 4 has the sum of the ranks 1 to 3, rank 2 that of 2 and 3,
# and the last one its own value. With ReduceOp.AVG each is divided by 4 as well, so that the last rank has a quarter
# of its own value. A metric that is reduced for rank 0's log, and used on each rank, is wrong.
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
rank 0: SUM: had 1, has 1111
rank 1: SUM: had 10, has 1110
rank 2: SUM: had 100, has 1100
rank 3: SUM: had 1000, has 1000
rank 0: AVG: had 1, has 277.75
rank 1: AVG: had 10, has 277.5
rank 2: AVG: had 100, has 275
rank 3: AVG: had 1000, has 250
rank 0: MAX: had 1, has 1000
rank 1: MAX: had 10, has 1000
rank 2: MAX: had 100, has 1000
rank 3: MAX: had 1000, has 1000
OUT
