"""A parameter of shape (0, 1) has no elements. DistributedDataParallel cannot be made: `output with shape [0, 1]
doesn't match the broadcast shape [0, 0]`. Expected: parameters without elements are ordinary (G10)."""

from ranks import DistributedDataParallel, Model, each, failed, run, torch, verdict


def body(rank):
    rank.attempt("construction", lambda: DistributedDataParallel(Model(p=torch.ones(0, 1))))


seen = run(body)
verdict(shown=failed(seen, "construction", "broadcast shape"), right=each(seen, "construction", "ok"))
