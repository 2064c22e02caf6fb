"""FSDP2. A parameter is column-major. fully_shard raises `FSDP does not support non-contiguous parameters yet`, where
DistributedDataParallel averages it. The refusal comes at construction, so that no training is lost."""

import torch
from ranks import Model, each, failed, fsdp2, run, verdict

shard = fsdp2()


def body(rank):
    rank.attempt("construction", lambda: shard(Model(p=torch.zeros(4), q=torch.zeros(4, 2).t())))


seen = run(body)
verdict(shown=failed(seen, "construction", "non-contiguous parameters"), right=each(seen, "construction", "ok"))
