#!/usr/bin/env bash
# failed-average-has-summed: an average of integers that raises has already changed the tensor
#
# Guess: all_reduce(AVG) of an integer tensor over Gloo raises before it changes anything, so a program can catch the
# error and sum and divide instead.
# Seen: the sum is made first, and then the division raises. The tensor has the sum, on all ranks, and the sum that the
# program makes next is W times too large. The error text is about a cast and does not say that anything was done.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}"
ranks 2 <<'PY'
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
count = torch.tensor([4 + 4 * dist.get_rank()])
try:
    dist.all_reduce(count, op=dist.ReduceOp.AVG)
except RuntimeError as error:
    print("error:", str(error).split("\n")[0])
    print("the tensor is then", count.item())
    dist.all_reduce(count)
    count //= dist.get_world_size()
print("mean of 4 and 8:", count.item())
PY
expect <<'OUT'
all ranks: error: result type Float can't be cast to the desired output type Long
all ranks: the tensor is then 12
all ranks: mean of 4 and 8: 12
OUT
