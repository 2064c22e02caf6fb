#!/usr/bin/env bash
# functional-call-goes-round-the-reducer: a forward through DDP with parameters that were passed in is not averaged
#
# Guess: torch.func.functional_call(wrapped, parameters, data) is a forward of DDP, so gradients of what it computes are
# averaged, or the call is refused; the module's own forward and backward code runs.
# Seen: with the module's own parameters they are averaged. With other tensors (fast weights, an average of weights,
# parameters of a meta-learner) DDP's forward runs as ever, no hook is on these tensors, and each rank gets its own
# gradient, without an error.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}"
ranks 2 <<'PY'
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
data = torch.full((1, 1), 1.0 + 2 * dist.get_rank())
for name in ("its own parameters", "other ones"):
    wrapped = DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))
    parameters = dict(wrapped.named_parameters())
    if name == "other ones":
        parameters = {key: value.detach().clone().requires_grad_() for key, value in parameters.items()}
    torch.func.functional_call(wrapped, parameters, (data,)).sum().backward()
    print("%s: gradient %g, mean 2" % (name, parameters["module.weight"].grad.item()))
PY
expect <<'OUT'
all ranks: its own parameters: gradient 2, mean 2
rank 0: other ones: gradient 1, mean 2
rank 1: other ones: gradient 3, mean 2
OUT
