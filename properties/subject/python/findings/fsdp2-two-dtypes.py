"""FSDP2. One parameter is float32, the other float16, in one module. Construction succeeds, and each forward raises
`FSDP expects uniform original parameter dtype`. Expected: averages, or a refusal at construction."""

import torch
from ranks import Model, each, failed, fsdp2, run, verdict

shard = fsdp2()


def body(rank):
    models = []
    module = Model(p=torch.zeros(4), q=torch.zeros(4, dtype=torch.float16))
    if rank.attempt("construction", lambda: models.append(shard(module))):
        rank.attempt("pass", lambda: models[0]("pq", 1.0).backward())


seen = run(body)
verdict(
    shown=each(seen, "construction", "ok") and failed(seen, "pass", "uniform original parameter dtype"),
    right=failed(seen, "construction") or each(seen, "pass", "ok"),
)
