#!/usr/bin/env bash
# write-to-a-sharded-row-is-lost: weight[0] = 0 has no effect on a sharded weight
#
# Guess: an assignment to a row of a DTensor, or of a parameter under FSDP2, changes that row on the rank that has it, or
# raises.
# Seen: indexing along the sharded dimension gathers the rows into a copy, and the assignment changes the copy. The
# tensor stays as it was, without an error: with [i] =, slices, += and fill_() alike. Along another dimension the same
# assignment works. Resetting the row of a padding token, or of a new token, does nothing after the model is sharded.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}"
ranks 2 <<'PY'
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
module = torch.nn.Embedding(4, 2)
with torch.no_grad():
    module.weight.fill_(1.0)
    fully_shard(module)

    def show(name):
        print(name + ":", module.weight.full_tensor().tolist())

    module.weight[0] = 5.0
    show("weight[0] = 5")
    module.weight[1:3] += 5.0
    show("weight[1:3] += 5")
    module.weight[3].fill_(5.0)
    show("weight[3].fill_(5)")
    module.weight[:, 1] = 5.0
    show("weight[:, 1] = 5")
    module.weight.fill_(7.0)
    show("weight.fill_(7)")
PY
expect <<'OUT'
all ranks: weight[0] = 5: [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]
all ranks: weight[1:3] += 5: [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]
all ranks: weight[3].fill_(5): [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]
all ranks: weight[:, 1] = 5: [[1.0, 5.0], [1.0, 5.0], [1.0, 5.0], [1.0, 5.0]]
all ranks: weight.fill_(7): [[7.0, 7.0], [7.0, 7.0], [7.0, 7.0], [7.0, 7.0]]
OUT
