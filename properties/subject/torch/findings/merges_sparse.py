"""Rank 0 has a row of -0. The mean of that row is -0 if rank 1 has no rows, and +0 if it has another row (S1,
G9)."""

import torch
from ranks import DistributedDataParallel, each, run, verdict


def body(rank):
    for name, row_of_rank_1 in (("alone", []), ("beside another", [2])):
        model = DistributedDataParallel(torch.nn.Embedding(3, 1, sparse=True))
        rows = torch.tensor([1] if rank.number == 0 else row_of_rank_1, dtype=torch.long)
        (model(rows) * (-0.0 if rank.number == 0 else 1.0)).sum().backward()
        grad = model.module.weight.grad
        values = [
            value for row, value in zip(grad._indices()[0].tolist(), grad._values().flatten().tolist()) if row == 1
        ]
        rank.report(name, [str(value) for value in values])


seen = run(body)
verdict(
    shown=each(seen, "alone", ["-0.0"]) and each(seen, "beside another", ["0.0"]),
    right=each(seen, "alone", ["-0.0"]) and each(seen, "beside another", ["-0.0"]),
)
