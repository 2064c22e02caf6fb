"""A float16 embedding table: the backward raises as soon as two ranks have rows (S1)."""

import torch
from ranks import DistributedDataParallel, each, failed, run, verdict


def body(rank):
    model = DistributedDataParallel(torch.nn.Embedding(3, 2, sparse=True).half())
    rank.attempt("backward", lambda: model(torch.tensor([1])).sum().backward())


seen = run(body)
verdict(shown=failed(seen, "backward", "Half"), right=each(seen, "backward", "ok"))
