#!/usr/bin/env bash
# bool-sum-wraps: a flag that is true on every rank becomes false when it is summed often enough
#
# Guess: the sum of booleans is a logical or, as in NumPy; True stays True.
# Seen: over Gloo, torch adds the bytes below the flag. Two ranks leave a 2 in a bool tensor, which still counts as
# True; each further sum in place doubles it, and the eighth gives 256, whose byte is 0: False on every rank, without an
# error. A flag such as "stop" or "found an infinity" that is reduced in place each step is lost this way; 256 ranks
# need one call.
# Better: sum an int32.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}"
ranks 2 <<'PY'
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
flag = torch.tensor([True])
for call in range(1, 9):
    dist.all_reduce(flag)
    print("after", call, "sums:", flag.item(), "byte", flag.view(torch.uint8).item())
PY
expect <<'OUT'
all ranks: after 1 sums: True byte 2
all ranks: after 2 sums: True byte 4
all ranks: after 3 sums: True byte 8
all ranks: after 4 sums: True byte 16
all ranks: after 5 sums: True byte 32
all ranks: after 6 sums: True byte 64
all ranks: after 7 sums: True byte 128
all ranks: after 8 sums: False byte 0
OUT
