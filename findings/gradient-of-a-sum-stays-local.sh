#!/usr/bin/env bash
# gradient-of-a-sum-stays-local: the gradient of an all-reduce is a sum over the ranks in one library, and not in another
#
# Guess: y = the sum over all ranks of x * x, and each rank's loss is y times a factor of its own, 1 or 2. A rank's x
# is in both losses, so its gradient is 2 * x * (1 + 2); TensorFlow and torch.distributed.nn have it so.
# Seen: MLX gives each rank the gradient of its own loss alone, 2 * x * factor, for all_sum and for all_gather.
# A loss over gathered embeddings, as of CLIP, has the gradients of a fraction of itself after such a move.
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
x, factor = mx.array([3.0]), 1.0 + rank
by_sum = mx.grad(lambda x: (mx.distributed.all_sum(x * x) * factor).sum())(x)
by_gather = mx.grad(lambda x: ((mx.distributed.all_gather(x) ** 2) * factor).sum())(x)
print("all_sum: %g, all_gather: %g, of both losses 18" % (by_sum.item(), by_gather.item()))
PY
expect <<'OUT'
rank 0: all_sum: 6, all_gather: 6, of both losses 18
rank 1: all_sum: 12, all_gather: 12, of both losses 18
OUT
