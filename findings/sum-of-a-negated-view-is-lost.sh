#!/usr/bin/env bash
# sum-of-a-negated-view-is-lost: an all-reduce of a negated view leaves every rank its own numbers
#
# Guess: all_reduce of the imaginary part of a conjugate (of an FFT, say) reduces the numbers that the tensor shows, or
# raises, as a broadcast of the conjugate does.
# Seen: PyTorch conjugates lazily, and .imag of the result is a view whose sign is flipped when it is read. all_reduce takes
# such a tensor, runs, and changes nothing: after a sum, a maximum or a product each rank has its own numbers, without an
# error or a warning. all_gather and broadcast of the same tensor send the right numbers.
# Better: all_reduce of tensor.resolve_neg(), or of a clone.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}"
ranks 2 <<'PY'
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()


def own():
    return torch.tensor([1j, 2j] if rank == 0 else [3j, 0.5j]).conj().imag


print("own numbers:", own().tolist())
for name in ("SUM", "MAX", "PRODUCT"):
    x = own()
    dist.all_reduce(x, op=getattr(dist.ReduceOp, name))
    print("%s: %s" % (name, x.tolist()))
received = [torch.zeros(2), torch.zeros(2)]
dist.all_gather(received, own())
print("all_gather:", [x.tolist() for x in received])
x = own() if rank == 0 else torch.zeros(2)
dist.broadcast(x, 0)
print("broadcast:", x.tolist())
x = own().clone()
dist.all_reduce(x, op=dist.ReduceOp.MAX)
print("MAX of a clone:", x.tolist())
try:
    dist.broadcast(torch.tensor([1j]).conj(), 0)
    print("broadcast of the conjugate: passes")
except RuntimeError:
    print("broadcast of the conjugate: raises")
PY
expect <<'OUT'
rank 0: own numbers: [-1.0, -2.0]
rank 1: own numbers: [-3.0, -0.5]
rank 0: SUM: [-1.0, -2.0]
rank 1: SUM: [-3.0, -0.5]
rank 0: MAX: [-1.0, -2.0]
rank 1: MAX: [-3.0, -0.5]
rank 0: PRODUCT: [-1.0, -2.0]
rank 1: PRODUCT: [-3.0, -0.5]
all ranks: all_gather: [[-1.0, -2.0], [-3.0, -0.5]]
all ranks: broadcast: [-1.0, -2.0]
all ranks: MAX of a clone: [-1.0, -0.5]
all ranks: broadcast of the conjugate: raises
OUT
