#!/usr/bin/env bash
# hooks-see-other-gradients: DDP runs both kinds of gradient hooks before the mean, FSDP2 runs one kind never
#
# Guess: register_post_accumulate_grad_hook runs when the gradient is final, so that an optimizer may step in it; under
# a data-parallel wrapper that is the mean over the ranks. register_hook runs under every wrapper.
# Seen: under DDP both hooks see this rank's own gradient; the mean is written into the gradient afterwards. An
# optimizer step in the hook, as PyTorch's tutorial has it for one process, makes the replicas differ, silently. Under
# FSDP2 the post-accumulate hook sees the mean, and register_hook on the parameter never fires, also silently.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}"
ranks 2 <<'PY'
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
local = 1.0 + 2 * dist.get_rank()  # each rank's own gradient is 1 or 3, the mean is 2


def value_of(gradient):
    return getattr(gradient, "full_tensor", lambda: gradient)()[0, 0].item()


def seen_by_hooks(wrap):
    module = torch.nn.Linear(1, 2, bias=False)
    wrapped = wrap(module)
    seen = []
    module.weight.register_hook(lambda gradient: seen.append("hook %g" % value_of(gradient)))
    module.weight.register_post_accumulate_grad_hook(lambda p: seen.append("post-accumulate %g" % value_of(p.grad)))
    wrapped(torch.full((1, 1), local)).sum().backward()
    return "%s; after backward %g" % (", ".join(seen), value_of(module.weight.grad))


print("DDP:", seen_by_hooks(DistributedDataParallel))
print("FSDP2:", seen_by_hooks(fully_shard))

module = torch.nn.Linear(1, 1, bias=False)
torch.nn.init.zeros_(module.weight)
wrapped = DistributedDataParallel(module)
optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
module.weight.register_post_accumulate_grad_hook(lambda parameter: optimizer.step() and None)
wrapped(torch.full((1, 1), local)).sum().backward()
print("DDP, optimizer in the hook: weight", module.weight.item())
PY
expect <<'OUT'
rank 0: DDP: hook 1, post-accumulate 1; after backward 2
rank 1: DDP: hook 3, post-accumulate 3; after backward 2
all ranks: FSDP2: post-accumulate 2; after backward 2
rank 0: DDP, optimizer in the hook: weight -1.0
rank 1: DDP, optimizer in the hook: weight -3.0
OUT
