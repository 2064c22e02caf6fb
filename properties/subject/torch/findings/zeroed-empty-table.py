"""A table without rows; rank 0 zeroed its sparse gradient in place, rank 1 did not. The next backward fails on both
(S1). DistributedDataParallel itself fails to broadcast such a table in some versions, so that the broadcast is left
out."""

import torch
from ranks import DistributedDataParallel, Model, each, failed, run, verdict


class NoRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table):
        return table.sum()

    @staticmethod
    def backward(ctx, gradient):
        return torch.sparse_coo_tensor(torch.zeros((1, 0), dtype=torch.long), torch.zeros(0, 1), (0, 1))


class Empty(torch.nn.EmbeddingBag):  # one of the modules whose gradients DDP expects to be sparse
    def forward(self):
        return NoRows.apply(self.weight)


def body(rank):
    torch.nn.parallel.distributed._sync_module_states = lambda *arguments, **options: None
    model = DistributedDataParallel(Empty(0, 1, sparse=True, _weight=torch.zeros(0, 1)))
    rank.attempt("first", lambda: model().backward())
    if rank.number == 0:
        model.zero_grad(set_to_none=False)
    rank.attempt("second", lambda: model().backward())


seen = run(body)
verdict(
    shown=each(seen, "first", "ok") and failed(seen, "second"),
    right=each(seen, "first", "ok") and each(seen, "second", "ok"),
)
