#!/usr/bin/env bash
# sharding-becomes-replication: Accelerate takes a plugin for FSDP2 on CPUs, and prepares DDP
#
# Guess: an Accelerator that is given a FullyShardedDataParallelPlugin shards the model, or says why it cannot: fully_shard
# itself works on CPUs.
# Seen: on CPUs the plugin is taken, and prepare() returns a DistributedDataParallel, without an error and without a warning.
# Each rank keeps the whole model and the whole state of the optimizer, and what only FSDP does, a test on CPUs does not see.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}" "${accelerate_1_15_0[@]}"
ranks 2 <<'PY'
import warnings

import torch
from torch.distributed.fsdp import FSDPModule, fully_shard

from accelerate import Accelerator
from accelerate.utils import FullyShardedDataParallelPlugin


def made():
    module = torch.nn.Linear(4, 4, bias=False)
    return module, torch.optim.SGD(module.parameters(), lr=1.0)


def elements(module):
    return sum(getattr(each, "to_local", lambda each=each: each)().numel() for each in module.parameters())


with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    accelerator = Accelerator(cpu=True, fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version=2))
    prepared, optimizer = accelerator.prepare(*made())
print("distributed_type: %s" % accelerator.distributed_type.value)
print("prepared: %s, sharded: %s" % (type(prepared).__name__, isinstance(prepared, FSDPModule)))
print("warnings about it: %d" % sum("fsdp" in str(each.message).lower() for each in said))
print("elements on this rank, of 16: %d" % elements(prepared))
print("with fully_shard itself: %d" % elements(fully_shard(made()[0])))
PY
expect <<'OUT'
all ranks: distributed_type: MULTI_CPU
all ranks: prepared: DistributedDataParallel, sharded: False
all ranks: warnings about it: 0
all ranks: elements on this rank, of 16: 16
all ranks: with fully_shard itself: 8
OUT
