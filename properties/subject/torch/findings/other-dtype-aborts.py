"""float32 on rank 0, float64 on rank 1: Gloo aborts a rank's process (B4)."""

import torch
from ranks import DistributedDataParallel, Model, failed, run, verdict


def body(rank):
    models = []
    module = Model(a=torch.zeros(2), b=torch.zeros(2)).to((torch.float32, torch.float64)[rank.number])
    if rank.attempt("construction", lambda: models.append(DistributedDataParallel(module))):
        rank.attempt("pass", lambda: models[0]("ab", 1.0).backward())


seen = run(body)
verdict(shown=any(one["end"] == "SIGABRT" for one in seen), right=failed(seen, "construction"))
