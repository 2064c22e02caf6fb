#!/usr/bin/env bash
# matched-by-evaluation: MLX pairs the collectives of two ranks in the order in which results are looked at
#
# Guess: two all_sums that both ranks call in the same order are paired in that order.
# Seen: MLX is lazy, and a collective runs when its result is evaluated. If one rank evaluates the loss first and the
# other one the gradient, the loss of one is added to the gradient of the other, on both, without an error, as the
# shapes are equal. A single evaluation of a + b on one rank and b + a on the other does it, too. Printing on rank 0 only
# is enough.
source "$(dirname -- "$0")/lib.sh"
install "${mlx_0_32_4[@]}"
ranks 2 <<'PY'
import json
import os

import mlx.core as mx

rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"])
os.environ["MLX_RANK"], os.environ["MLX_HOSTFILE"] = str(rank), "hosts-%d.json" % rank
with open(os.environ["MLX_HOSTFILE"], "w") as hosts:
    json.dump([["127.0.0.1:%d" % (port + peer)] for peer in range(2)], hosts)
mx.distributed.init(strict=True, backend="ring")


def sums():
    return mx.distributed.all_sum(mx.array(1.0)), mx.distributed.all_sum(mx.array(100.0))


a, b = sums()
mx.eval(a)
mx.eval(b)
print("evaluated in one order: a = %g, b = %g" % (a.item(), b.item()))
a, b = sums()
for result in (a, b) if rank == 0 else (b, a):
    mx.eval(result)
print("rank 1 evaluates b first: a = %g, b = %g" % (a.item(), b.item()))
a, b = sums()
mx.eval(a + b if rank == 0 else b + a)
print("rank 1 adds b + a: a = %g, b = %g" % (a.item(), b.item()))
PY
expect <<'OUT'
all ranks: evaluated in one order: a = 2, b = 200
all ranks: rank 1 evaluates b first: a = 101, b = 101
all ranks: rank 1 adds b + a: a = 101, b = 101
OUT
