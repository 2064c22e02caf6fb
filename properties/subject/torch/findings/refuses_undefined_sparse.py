"""Dynamic mode; rank 0 looks up no row of a table. It raises, in the mode that exists for this situation (G7, G8,
S1)."""

import torch
from ranks import DistributedDataParallel, each, failed, run, verdict


class Table(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.p = torch.nn.Embedding(3, 1, sparse=True), torch.nn.Parameter(torch.zeros(1))

    def forward(self, rows):
        return self.p.sum() + (self.table(rows).sum() if rows is not None else 0.0)


def body(rank):
    model = DistributedDataParallel(Table(), find_unused_parameters=True)
    rank.attempt("backward", lambda: model(None if rank.number == 0 else torch.tensor([1])).backward())


first, second = seen = run(body)
verdict(
    shown=failed([first], "backward", "Expected sparse gradient to be defined") and second["backward"] != "ok",
    right=each(seen, "backward", "ok"),
)
