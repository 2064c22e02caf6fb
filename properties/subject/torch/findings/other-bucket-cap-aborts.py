"""Unused detection; buckets of 25 MiB on rank 0, of 4 bytes on rank 1: Gloo aborts a rank's process (B4)."""

import torch
from ranks import DistributedDataParallel, Model, failed, run, verdict


def body(rank):
    models = []
    module = Model(big=torch.zeros(300000), a=torch.zeros(2), b=torch.zeros(2))
    cap = 25 if rank.number == 0 else 4 / 1024 / 1024
    if rank.attempt(
        "construction",
        lambda: models.append(DistributedDataParallel(module, find_unused_parameters=True, bucket_cap_mb=cap)),
    ):
        for index in range(2):
            rank.attempt("pass %d" % index, lambda: models[0](["a", "b", "big"], 1.0).backward())


seen = run(body)
verdict(shown=any(one["end"] == "SIGABRT" for one in seen), right=failed(seen, "construction"))
