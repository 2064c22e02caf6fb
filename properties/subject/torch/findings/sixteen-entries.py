"""Lookups of one row in one gradient are added in their order up to 16, and from 17 on in the order in which an
unstable sort leaves them (S1, G3)."""

import torch
from ranks import DistributedDataParallel, each, run, verdict


def body(rank):
    for count in (16, 18):
        model = DistributedDataParallel(torch.nn.Embedding(2, 1000, sparse=True))
        values = torch.rand(count, 1000, generator=torch.Generator().manual_seed(0))
        rows = torch.ones(count if rank.number == 0 else 0, dtype=torch.long)
        (model(rows) * values[: len(rows)]).sum().backward()
        in_order = torch.zeros(1000)
        for one in values / 2:
            in_order = in_order + one
        rank.report("%d, in order" % count, bool((model.module.weight.grad.to_dense()[1] == in_order).all()))


seen = run(body)
verdict(
    shown=each(seen, "16, in order", True) and each(seen, "18, in order", False),
    right=each(seen, "16, in order", True) and each(seen, "18, in order", True),
)
