#!/usr/bin/env bash
# group-that-a-rank-is-not-in: a collective over a group without this rank does nothing, and says nothing to the program
#
# Guess: all_reduce(tensor, group=g) on a rank that is not in g raises.
# Seen: it returns None and leaves the tensor as it is; only a Python warning is given, once. The same for broadcast,
# all_gather and barrier. A rank that was given the wrong group trains on with its own numbers. With async_op=True the
# None takes the place of the work, so that .wait() raises an AttributeError far from the cause.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}"
ranks 2 <<'PY'
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
group = dist.new_group([0])
tensor = torch.tensor([1.0 + rank])
print("rank in the group:", dist.get_rank(group))
print("all_reduce:", dist.all_reduce(tensor, group=group), tensor.item())
print("async_op:", type(dist.all_reduce(tensor, group=group, async_op=True)).__name__)
print("broadcast:", dist.broadcast(tensor, src=0, group=group), tensor.item())
gathered = [torch.zeros(1)]
print("all_gather:", dist.all_gather(gathered, tensor, group=group), gathered[0].item())
print("barrier:", dist.barrier(group=group))
PY
expect <<'OUT'
rank 0: rank in the group: 0
rank 1: rank in the group: -1
rank 0: all_reduce: None 1.0
rank 1: all_reduce: None 2.0
rank 0: async_op: Work
rank 1: async_op: NoneType
rank 0: broadcast: None 1.0
rank 1: broadcast: None 2.0
rank 0: all_gather: None 1.0
rank 1: all_gather: None 0.0
all ranks: barrier: None
OUT
