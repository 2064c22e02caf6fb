#!/usr/bin/env bash
# keras-statistics-under-ddp: DDP keeps PyTorch's batch statistics equal on all ranks, and Keras's not
#
# Guess: a Keras 3 model on the torch backend is a torch module, so DDP treats its BatchNormalization as it treats
# torch.nn.BatchNorm1d: rank 0's statistics are broadcast in each forward.
# Seen: Keras keeps them as parameters that need no gradient, not as buffers. DDP broadcasts parameters once, when it is
# constructed, and buffers in each forward: each rank has the statistics of its own data, and evaluates another model.
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
own = keras.Sequential([keras.layers.Input((1,)), keras.layers.BatchNormalization(momentum=0.5)])
for name, module, mean in (
    ("torch", torch.nn.BatchNorm1d(1, momentum=0.5), lambda module: module.running_mean),
    ("Keras", own, lambda module: module.layers[0].moving_mean.value),
):
    wrapped = DistributedDataParallel(module)
    for step in range(3):
        data = torch.tensor([[1.0], [3.0]]) + 10 * dist.get_rank()
        wrapped(data, training=True).sum().backward() if name == "Keras" else wrapped(data).sum().backward()
    with torch.no_grad():  # an evaluation
        wrapped(data, training=False) if name == "Keras" else wrapped(data)
    print("%s: moving mean %.2f" % (name, mean(module).item()))
    print("  buffers %d, parameters %d" % (len(list(module.buffers())), len(list(module.parameters()))))
PY
expect <<'OUT'
OUT
