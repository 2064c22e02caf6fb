"""Join; a rank without inputs shadows a sparse gradient that it never had: its shadow raises, and its peer reports
a broken connection (S1, S2)."""

import torch
from ranks import DistributedDataParallel, each, failed, run, verdict
from torch.distributed.algorithms.join import Join


def body(rank):
    model = DistributedDataParallel(torch.nn.Embedding(3, 1, sparse=True))

    def train():
        with Join([model]):
            for _ in range(rank.number):
                model(torch.tensor([1])).sum().backward()

    rank.attempt("join", train)


seen = run(body)
verdict(shown=failed(seen, "join"), right=each(seen, "join", "ok"))
