#!/usr/bin/env bash
# loss-is-right-and-its-gradient-is-not: five mean losses of an evenly sharded batch have gradients that are too large
#
# Guess: a mean loss of a sharded batch whose value is right has the gradient that one process computes, or all losses have
# the same factor.
# Seen: mse_loss, huber_loss, smooth_l1_loss, binary_cross_entropy and soft_margin_loss give the right loss, and a gradient
# that is too large by the number of shards (3 here): the backward divides by the elements of a shard. l1_loss,
# binary_cross_entropy_with_logits, cross_entropy and mse_loss(reduction="none").mean() are right. So a change from BCE with
# logits to BCE, or from L1 to Huber, multiplies the step, and nothing in the losses shows it.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}"
ranks 3 <<'PY'
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (3,))
batch = torch.arange(24.0).reshape(12, 2) / 8 - 1
wanted = (torch.arange(24.0).reshape(12, 2) % 5) / 5
labels = torch.arange(12) % 2

losses = {
    "mse_loss": lambda x, y, c: F.mse_loss(x, y),
    "huber_loss": lambda x, y, c: F.huber_loss(x, y),
    "smooth_l1_loss": lambda x, y, c: F.smooth_l1_loss(x, y),
    "binary_cross_entropy": lambda x, y, c: F.binary_cross_entropy(x.sigmoid(), y),
    "soft_margin_loss": lambda x, y, c: F.soft_margin_loss(x, y),
    "l1_loss": lambda x, y, c: F.l1_loss(x, y),
    "binary_cross_entropy_with_logits": lambda x, y, c: F.binary_cross_entropy_with_logits(x, y),
    "cross_entropy": lambda x, y, c: F.cross_entropy(x, c),
    "mse_loss, none, mean()": lambda x, y, c: F.mse_loss(x, y, reduction="none").mean(),
}
for name, loss in losses.items():
    alone = batch.clone().requires_grad_()
    expected = loss(alone, wanted, labels)
    expected.backward()
    sharded, *others = [distribute_tensor(one.clone(), mesh, [Shard(0)]) for one in (batch, wanted, labels)]
    sharded.requires_grad_()
    seen = loss(sharded, *others)
    seen.backward()
    ratio = (sharded.grad.full_tensor() / alone.grad).nanmean().item()
    print("%s: loss times %.2f, gradient times %.2f" % (name, seen.full_tensor().item() / expected.item(), ratio))
PY
expect <<'OUT'
all ranks: mse_loss: loss times 1.00, gradient times 3.00
all ranks: huber_loss: loss times 1.00, gradient times 3.00
all ranks: smooth_l1_loss: loss times 1.00, gradient times 3.00
all ranks: binary_cross_entropy: loss times 1.00, gradient times 3.00
all ranks: soft_margin_loss: loss times 1.00, gradient times 3.00
all ranks: l1_loss: loss times 1.00, gradient times 1.00
all ranks: binary_cross_entropy_with_logits: loss times 1.00, gradient times 1.00
all ranks: cross_entropy: loss times 1.00, gradient times 1.00
all ranks: mse_loss, none, mean(): loss times 1.00, gradient times 1.00
OUT
