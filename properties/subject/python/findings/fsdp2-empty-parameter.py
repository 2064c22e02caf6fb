"""FSDP2. A parameter has no elements. Construction and forward succeed, and each backward raises
`_chunk_cat expects non-empty tensor`. Expected: a gradient without elements (G10), or a refusal at construction."""

import torch
from ranks import Model, each, failed, fsdp2, run, verdict

shard = fsdp2()


def body(rank):
    models, losses = [], []
    if rank.attempt("construction", lambda: models.append(shard(Model(p=torch.zeros(4), q=torch.zeros(0))))):
        if rank.attempt("forward", lambda: losses.append(models[0]("pq", 1.0))):
            rank.attempt("backward", losses[0].backward)


seen = run(body)
verdict(
    shown=each(seen, "forward", "ok") and failed(seen, "backward", "non-empty tensor"),
    right=failed(seen, "construction") or each(seen, "backward", "ok"),
)
