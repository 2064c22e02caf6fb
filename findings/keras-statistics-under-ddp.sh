#!/usr/bin/env bash
# keras-statistics-under-ddp: DDP keeps PyTorch's batch statistics equal on all ranks, and Keras's not
#
# Guess: a Keras 3 model on the torch backend is a torch module, so DDP treats its BatchNormalization as it treats
# torch.nn.BatchNorm1d: rank 0's statistics are broadcast in each forward.
# Seen: Keras keeps them as parameters that need no gradient, not as buffers. DDP broadcasts parameters once, when it is
# constructed, and buffers in each forward: each rank has the statistics of its own data, and evaluates another model.
# With torch's module the ranks are apart by the last update alone.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}" keras==3.15.1 absl-py==2.5.1 h5py==3.14.0 ml-dtypes==0.6.0 namex==0.1.0 optree==0.20.0 \
  packaging==26.4 rich==15.0.0 pygments==2.21.0 markdown-it-py==4.3.0 mdurl==0.1.2
ranks 2 <<'PY'
import os

os.environ["KERAS_BACKEND"] = "torch"
import keras
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
data = torch.tensor([[0.0], [2.0]]) + 10 * dist.get_rank()  # the mean is 1 on rank 0, and 11 on rank 1
own = keras.Sequential([keras.layers.Input((1,)), keras.layers.BatchNormalization(momentum=0.9)])
for name, module, options, mean in (
    ("torch", torch.nn.BatchNorm1d(1), {}, lambda module: module.running_mean),
    ("Keras", own, {"training": True}, lambda module: module.layers[0].moving_mean.value),
):
    wrapped = DistributedDataParallel(module)
    for step in range(60):
        wrapped(data, **options).sum().backward()
    print("%s: moving mean %.2f, buffers %d" % (name, mean(module).item(), len(list(module.buffers()))))
PY
expect <<'OUT'
rank 0: torch: moving mean 1.00, buffers 3
rank 1: torch: moving mean 2.00, buffers 3
rank 0: Keras: moving mean 1.00, buffers 0
rank 1: Keras: moving mean 10.98, buffers 0
OUT
