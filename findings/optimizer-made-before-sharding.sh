#!/usr/bin/env bash
# optimizer-made-before-sharding: with FSDP2 the order of two lines decides whether anything is trained
#
# Guess: an optimizer that was made before the model was wrapped works, as it does with DDP, or its first step raises.
# Seen: fully_shard() replaces the module's parameters. The optimizer keeps the old ones, whose gradients stay None, and
# an optimizer passes over parameters without a gradient: step() does nothing, for good. The gradients of the model are
# right, and so is everything that is logged of them.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}"
ranks 2 <<'PY'
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
for name, wrap in (("DDP", DistributedDataParallel), ("FSDP2", fully_shard)):
    module = torch.nn.Linear(2, 2, bias=False)
    torch.nn.init.ones_(module.weight)
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    wrapped = wrap(module)
    wrapped(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    gather = lambda tensor: getattr(tensor, "full_tensor", lambda: tensor)()[0, 0].item()
    print("%s: gradient %g, weight 1 became %g" % (name, gather(module.weight.grad), gather(module.weight.detach())))
PY
expect <<'OUT'
all ranks: DDP: gradient 1, weight 1 became 0
all ranks: FSDP2: gradient 1, weight 1 became 1
OUT
