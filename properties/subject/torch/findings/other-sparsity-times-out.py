"""The gradient of a table is sparse on rank 1 alone: construction succeeds, and the first pass times out (B4)."""

import time
import torch
from ranks import TIMEOUT_SECONDS, DistributedDataParallel, each, failed, run, verdict


def body(rank):
    models = []
    module = torch.nn.Embedding(4, 2, sparse=rank.number == 1)
    if rank.attempt("construction", lambda: models.append(DistributedDataParallel(module))):
        rank.attempt("pass", lambda: models[0](torch.tensor([1])).sum().backward())
        time.sleep(TIMEOUT_SECONDS + 1)  # so that the other rank has its own error


seen = run(body)
verdict(
    shown=each(seen, "construction", "ok") and any("Timed out" in (one["pass"] or "") for one in seen),
    right=failed(seen, "construction"),
)
