"""FSDP2. A parameter has no dimension. fully_shard raises `fully_shard doesn't support scalar parameters`, where
DistributedDataParallel averages it. The refusal comes at construction, so that no training is lost."""

import torch
from ranks import Model, each, failed, fsdp2, run, verdict

shard = fsdp2()


def body(rank):
    rank.attempt("construction", lambda: shard(Model(p=torch.zeros(4), q=torch.zeros(()))))


seen = run(body)
verdict(shown=failed(seen, "construction", "scalar parameters"), right=each(seen, "construction", "ok"))
