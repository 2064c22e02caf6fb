#!/usr/bin/env bash
# edit-inside-forward-is-forgotten: what a module's forward does to its own weights does not last under FSDP2
#
# Guess: a forward that changes its weight in place (torch.nn.Embedding with max_norm, a critic whose weights are clamped)
# changes the parameter, as without the wrapper, or raises.
# Seen: the forward has the gathered copy of the parameter, which is dropped afterwards. The output is that of the
# changed weight, and the parameter, its checkpoint and the optimizer have the old one. For Embedding(max_norm=1) the
# rows stay too long for good.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}"
ranks 2 <<'PY'
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")


class Clamped(torch.nn.Linear):
    def forward(self, x):
        self.weight.data.clamp_(-1, 1)
        return super().forward(x)


rows = torch.arange(4)
for make, data in (
    (lambda: torch.nn.Embedding(4, 1, max_norm=1.0), rows),
    (lambda: Clamped(1, 4, bias=False), torch.ones(1, 1)),
):
    for name, wrap in (
        ("DDP", DistributedDataParallel),
        ("FSDP2", lambda module: fully_shard(module, reshard_after_forward=True)),
    ):
        module = make()
        with torch.no_grad():
            module.weight.fill_(3.0)
        output = wrap(module)(data)
        weight = getattr(module.weight, "full_tensor", lambda: module.weight)()
        kind = "Embedding" if isinstance(module, torch.nn.Embedding) else "clamped Linear"
        print("%s, %s: output %.1f, weight afterwards %.1f" % (kind, name, output.flatten()[0], weight[0, 0]))
PY
expect <<'OUT'
all ranks: Embedding, DDP: output 1.0, weight afterwards 1.0
all ranks: Embedding, FSDP2: output 1.0, weight afterwards 3.0
all ranks: clamped Linear, DDP: output 1.0, weight afterwards 1.0
all ranks: clamped Linear, FSDP2: output 1.0, weight afterwards 3.0
OUT
