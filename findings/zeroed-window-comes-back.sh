#!/usr/bin/env bash
# zeroed-window-comes-back: under FSDP2 zero_grad() does not drop what a window without synchronization has gathered
#
# Guess: after a micro-batch without gradient synchronization, zero_grad() of the optimizer (say because its loss was not
# finite) drops that micro-batch, as without the wrapper and as with DDP's no_sync.
# Seen: the unreduced gradient lies on the gathered parameter, which neither the module nor the optimizer holds.
# zero_grad() finds nothing to clear, and the next synchronized backward adds the dropped micro-batch to its own.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}"
ranks 2 <<'PY'
import contextlib

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")


@contextlib.contextmanager
def unsynchronized(module):
    module.set_requires_gradient_sync(False)
    yield
    module.set_requires_gradient_sync(True)


for name, wrap, no_sync in (
    ("DDP", DistributedDataParallel, lambda wrapped: wrapped.no_sync()),
    ("FSDP2", fully_shard, unsynchronized),
):
    module = torch.nn.Linear(1, 2, bias=False)
    wrapped = wrap(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    with no_sync(wrapped):
        wrapped(torch.full((1, 1), 100.0)).sum().backward()
    optimizer.zero_grad()
    module.zero_grad()
    wrapped(torch.ones(1, 1)).sum().backward()
    gradient = getattr(module.weight.grad, "full_tensor", lambda: module.weight.grad)()
    print("%s: gradient of the batch after zero_grad: %g" % (name, gradient[0, 0]))
PY
expect <<'OUT'
all ranks: DDP: gradient of the batch after zero_grad: 1
all ranks: FSDP2: gradient of the batch after zero_grad: 101
OUT
