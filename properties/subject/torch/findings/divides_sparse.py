"""Three ranks, of which one looks up a row, twice: each entry is divided by 3 before the two are added; a dense
gradient is their sum, multiplied by 1/3 (G2, S1)."""

import torch
from ranks import DistributedDataParallel, each, run, verdict


def body(rank):
    model = DistributedDataParallel(torch.nn.Embedding(2, 1000, sparse=True))
    values = torch.rand(2, 1000, generator=torch.Generator().manual_seed(0))
    rows = torch.tensor([1, 1] if rank.number == 0 else [], dtype=torch.long)
    (model(rows) * values[: len(rows)]).sum().backward()
    row = model.module.weight.grad.to_dense()[1]
    rank.report("entries divided", bool((row == values[0] / 3 + values[1] / 3).all()))
    rank.report("sum multiplied", bool((row == (values[0] + values[1]) * torch.tensor(1 / 3)).all()))


seen = run(body, world=3)
verdict(
    shown=each(seen, "entries divided", True) and each(seen, "sum multiplied", False),
    right=each(seen, "sum multiplied", True),
)
