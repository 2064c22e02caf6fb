#!/usr/bin/env bash
# mean-loss-of-uneven-shards: four of six mean losses of a sharded batch are means of means
#
# Guess: a loss with reduction="mean" of DTensors is the loss of the whole batch, however its rows are spread.
# Seen: with three rows on two ranks (two and one), mse_loss, smooth_l1_loss, huber_loss and binary_cross_entropy
# average the ranks' means, so that the row that is alone counts twice; cross_entropy, l1_loss and tensor.mean() are
# right. With even shards all agree, which is what a test has, and the last batch of an epoch has not.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}"
ranks 2 <<'PY'
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,))
x = torch.tensor([0.1, 0.2, 0.9])
y = torch.tensor([0.0, 0.0, 0.0])
for name in ("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "l1_loss"):
    loss = getattr(F, name)
    sharded = loss(distribute_tensor(x, mesh, [Shard(0)]), distribute_tensor(y, mesh, [Shard(0)]))
    print("%s: %.4f, sharded %.4f" % (name, loss(x, y), sharded.full_tensor()))
logits = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0]])
classes = torch.zeros(3, dtype=torch.long)
sharded = F.cross_entropy(distribute_tensor(logits, mesh, [Shard(0)]), distribute_tensor(classes, mesh, [Shard(0)]))
print("cross_entropy: %.4f, sharded %.4f" % (F.cross_entropy(logits, classes), sharded.full_tensor()))
print("mean(): %.4f, sharded %.4f" % (x.mean(), distribute_tensor(x, mesh, [Shard(0)]).mean().full_tensor()))
PY
expect <<'OUT'
all ranks: mse_loss: 0.2867, sharded 0.4175
all ranks: smooth_l1_loss: 0.1433, sharded 0.2087
all ranks: huber_loss: 0.1433, sharded 0.2087
all ranks: binary_cross_entropy: 0.8770, sharded 1.2334
all ranks: l1_loss: 0.4000, sharded 0.4000
all ranks: cross_entropy: 1.1629, sharded 1.1629
all ranks: mean(): 0.4000, sharded 0.4000
OUT
