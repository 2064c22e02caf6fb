#!/usr/bin/env bash
# reduced-behind-autograd: an all-reduce overwrites what the backward needs, and autograd does not notice
#
# Guess: a change in place of a tensor that autograd saved is an error at the backward ("modified by an inplace
# operation"), also if dist.all_reduce makes it.
# Seen: all_reduce does not count as a change (the version of the tensor stays 0), so that the backward computes with
# the sum where it needs the rank's own value: the gradient of exp(x) becomes exp(1) + exp(2). With y.mul_(1) the same
# program raises. Reducing a loss for the log, before its backward, is enough where the last operation saves its result.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}"
ranks 2 <<'PY'
import math

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
own = 1.0 + dist.get_rank()
for name, change in (
    ("all_reduce", dist.all_reduce),
    ("broadcast", lambda y: dist.broadcast(y, 0)),
    ("mul_", lambda y: y.mul_(1)),
):
    x = torch.tensor([own], requires_grad=True)
    y = x.exp()
    with torch.no_grad():
        change(y)
    try:
        y.sum().backward()
        result = "gradient %.3f" % x.grad.item()
    except RuntimeError as error:
        result = "RuntimeError: ..." + str(error)[38:88] + "..."
    print("%s: version %d, %s (exp(x) is %.3f)" % (name, y._version, result, math.exp(own)))
PY
expect <<'OUT'
rank 0: all_reduce: version 0, gradient 10.107 (exp(x) is 2.718)
rank 1: all_reduce: version 0, gradient 10.107 (exp(x) is 7.389)
rank 0: broadcast: version 0, gradient 2.718 (exp(x) is 2.718)
rank 1: broadcast: version 0, gradient 2.718 (exp(x) is 7.389)
rank 0: mul_: version 1, RuntimeError: ...nt computation has been modified by an inplace ope... (exp(x) is 2.718)
rank 1: mul_: version 1, RuntimeError: ...nt computation has been modified by an inplace ope... (exp(x) is 7.389)
OUT
