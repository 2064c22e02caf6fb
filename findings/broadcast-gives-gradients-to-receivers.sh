#!/usr/bin/env bash
# broadcast-gives-gradients-to-receivers: the gradient of one broadcast goes to the rank that sent, of the other to each rank
#
# Guess: what a rank brought to a broadcast from rank 0 is overwritten, so that its gradient is 0 on all ranks but that one,
# which gets the sum of all ranks' gradients; torch.distributed.nn has it so. The functional collective does the same, as those
# for all_reduce and all_gather do, or it raises.
# Seen: the functional broadcast gives each rank the gradient of its own loss, as if nothing had been sent. The sender's
# weights train on its own batch alone, and the receivers' are changed by a loss in which they do not occur. Nothing is raised.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}"
ranks 2 <<'PY'
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as collectives
from torch.distributed.nn import functional

dist.init_process_group("gloo")
rank = dist.get_rank()


def show(name, function):
    own = torch.tensor([[5.0], [7.0]][rank], requires_grad=True)
    result = function(own)
    (result * [1.0, 10.0][rank]).sum().backward()
    print("%s: result %g, gradient %s" % (name, result.sum(), own.grad.tolist()))


show("torch.distributed.nn", lambda own: functional.broadcast(own, 0))
show("functional collective", lambda own: collectives.broadcast(own, 0, dist.group.WORLD))
show("functional all_reduce", lambda own: collectives.all_reduce(own, "sum", dist.group.WORLD))
PY
expect <<'OUT'
rank 0: torch.distributed.nn: result 5, gradient [11.0]
rank 1: torch.distributed.nn: result 5, gradient [0.0]
rank 0: functional collective: result 5, gradient [1.0]
rank 1: functional collective: result 5, gradient [10.0]
all ranks: functional all_reduce: result 12, gradient [11.0]
OUT
