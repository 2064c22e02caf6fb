"""Dynamic mode: no rank looks up a row of the table, whose sparse gradient differs from rank to rank and is
averaged nevertheless; a dense gradient is not (G5)."""

import torch
from ranks import DistributedDataParallel, each, grad_of, run, verdict


class Tables(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(2, 1, sparse=True)
        self.dense, self.other = (torch.nn.Parameter(torch.zeros(2)) for _ in range(2))

    def forward(self):
        return self.other.sum()


def body(rank):
    model = DistributedDataParallel(Tables(), find_unused_parameters=True)
    value = torch.tensor([[3.0 + 2 * rank.number]])
    model.module.table.weight.grad = torch.sparse_coo_tensor([[1]], value, (2, 1))
    model.module.dense.grad = value.expand(2, 1).flatten().clone()
    model().backward()
    rank.report("table", model.module.table.weight.grad.to_dense().flatten().tolist())
    rank.report("dense", grad_of(model, "dense"))


seen = run(body)
verdict(
    shown=each(seen, "table", [0.0, 4.0]) and each(seen, "dense", [3.0] * 2, [5.0] * 2),
    right=each(seen, "table", [0.0, 3.0], [0.0, 5.0]) and each(seen, "dense", [3.0] * 2, [5.0] * 2),
)
