#!/usr/bin/env bash
# gradients-are-reduced-alike: the gradient of a maximum over ranks is the maximum of the gradients
#
# Guess: torch.distributed.nn.functional.all_reduce and reduce_scatter have the gradient of what they compute: with MAX it
# goes to the rank that has the largest number, with PRODUCT it has the other ranks' factors, with AVG it is divided; or
# the backward raises.
# Seen: the backward of all_reduce reduces the gradients by the operation of the forward: both ranks get the largest
# gradient, or the product of the gradients. That of reduce_scatter passes gradients on as for a sum, so that AVG trains with W
# times the gradient. SUM is right, and so is all_reduce with AVG, which is what a test tries. Nothing is raised.
# Better: torch.distributed._functional_collectives, whose all_reduce is right for AVG, MAX and MIN, and raises for the rest.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}"
ranks 2 <<'PY'
import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import all_reduce, reduce_scatter_tensor
from torch.distributed.nn import functional

dist.init_process_group("gloo")
rank, everyone = dist.get_rank(), dist.group.WORLD
numbers = torch.tensor([[1.0, 5.0], [4.0, 3.0]])  # a row for each rank
factors = torch.tensor([1.0, 2.0])  # the loss of a rank is the sum of its results, times its factor
one_process = {
    "SUM": lambda x: x.sum(0),
    "AVG": lambda x: x.mean(0),
    "MAX": lambda x: x.amax(0),
    "PRODUCT": lambda x: x.prod(0),
}


def show(name, function):
    own = numbers[rank].clone().requires_grad_()
    try:
        (factors[rank] * function(own).sum()).backward()
        print(name, own.grad.tolist())
    except RuntimeError:
        print(name, "raises")


for name, reduce in one_process.items():
    operation = getattr(dist.ReduceOp, name)
    whole = numbers.clone().requires_grad_()
    (factors.sum() * reduce(whole).sum()).backward()
    print("all_reduce, %s, one process: %s" % (name, whole.grad[rank].tolist()))
    show("all_reduce, %s:" % name, lambda own: functional.all_reduce(own, op=operation))
    show("functional collective, %s:" % name, lambda own: all_reduce(own, name.lower(), everyone))
    whole = numbers.clone().requires_grad_()
    (factors * reduce(whole)).sum().backward()
    print("reduce_scatter, %s, one process: %s" % (name, whole.grad[rank].tolist()))
    show("reduce_scatter, %s:" % name,
         lambda own: functional.reduce_scatter(torch.empty(1), list(own.split(1)), op=operation))
    show("functional collective, %s:" % name, lambda own: reduce_scatter_tensor(own, name.lower(), 0, everyone))
PY
expect <<'OUT'
all ranks: all_reduce, SUM, one process: [3.0, 3.0]
all ranks: all_reduce, SUM: [3.0, 3.0]
all ranks: functional collective, SUM: [3.0, 3.0]
all ranks: reduce_scatter, SUM, one process: [1.0, 2.0]
all ranks: reduce_scatter, SUM: [1.0, 2.0]
all ranks: functional collective, SUM: [1.0, 2.0]
all ranks: all_reduce, AVG, one process: [1.5, 1.5]
all ranks: all_reduce, AVG: [1.5, 1.5]
all ranks: functional collective, AVG: [1.5, 1.5]
all ranks: reduce_scatter, AVG, one process: [0.5, 1.0]
all ranks: reduce_scatter, AVG: [1.0, 2.0]
all ranks: functional collective, AVG: raises
rank 0: all_reduce, MAX, one process: [0.0, 3.0]
rank 1: all_reduce, MAX, one process: [3.0, 0.0]
all ranks: all_reduce, MAX: [2.0, 2.0]
rank 0: functional collective, MAX: [0.0, 3.0]
rank 1: functional collective, MAX: [3.0, 0.0]
rank 0: reduce_scatter, MAX, one process: [0.0, 2.0]
rank 1: reduce_scatter, MAX, one process: [1.0, 0.0]
all ranks: reduce_scatter, MAX: [1.0, 2.0]
all ranks: functional collective, MAX: raises
rank 0: all_reduce, PRODUCT, one process: [12.0, 9.0]
rank 1: all_reduce, PRODUCT, one process: [3.0, 15.0]
all ranks: all_reduce, PRODUCT: [2.0, 2.0]
all ranks: functional collective, PRODUCT: raises
rank 0: reduce_scatter, PRODUCT, one process: [4.0, 6.0]
rank 1: reduce_scatter, PRODUCT, one process: [1.0, 10.0]
all ranks: reduce_scatter, PRODUCT: [1.0, 2.0]
all ranks: functional collective, PRODUCT: raises
OUT
