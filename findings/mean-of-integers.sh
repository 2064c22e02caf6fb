#!/usr/bin/env bash
# mean-of-integers: the mean of 1 and 2 over two ranks, asked of three libraries
#
# Guess: 1.5, or an error for integer tensors.
# Seen: Lightning Fabric's all_reduce (whose default is the mean, not the sum) and MMEngine's two functions give 1 and
# keep the dtype, silently; Accelerate raises. Fabric and MMEngine's all_reduce also write the result into the tensor
# that they were given, all_reduce_dict does not. A count of samples that is averaged this way is wrong by a half.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}" "${accelerate_1_15_0[@]}" lightning-fabric==2.6.6 lightning-utilities==0.15.3 \
  mmengine==0.10.7 addict==2.4.0 termcolor==3.3.0 yapf==0.43.0 platformdirs==4.14.8 rich==15.0.0 pygments==2.21.0 \
  markdown-it-py==4.3.0 mdurl==0.1.2
ranks 2 <<'PY'
import torch
import torch.distributed as dist
from accelerate import Accelerator
from lightning_fabric import Fabric
from mmengine.dist import all_reduce, all_reduce_dict

accelerator = Accelerator(cpu=True)
fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
fabric.launch()


def show(name, call):
    tensor = torch.tensor([1 + dist.get_rank()])
    try:
        result = call(tensor)
        print("%s: %s, its argument is then %s" % (name, (tensor if result is None else result).item(), tensor.item()))
    except Exception as error:
        print("%s: %s, its argument is then %s" % (name, type(error).__name__, tensor.item()))


def of_dict(tensor):
    values = {"value": tensor}
    all_reduce_dict(values, "mean")
    return values["value"]


show("Fabric", fabric.all_reduce)
show("MMEngine", lambda tensor: all_reduce(tensor, "mean"))
show("MMEngine, in a dict", of_dict)
show("Accelerate", lambda tensor: accelerator.reduce(tensor, "mean"))
PY
expect <<'OUT'
all ranks: Fabric: 1, its argument is then 1
all ranks: MMEngine: 1, its argument is then 1
rank 0: MMEngine, in a dict: 1, its argument is then 1
rank 1: MMEngine, in a dict: 1, its argument is then 2
rank 0: Accelerate: RuntimeError, its argument is then 1
rank 1: Accelerate: RuntimeError, its argument is then 2
OUT
