"""Parameters a and b of one shape were made in another order on each rank: a is averaged with b, without an error
(B4)."""

import torch
from ranks import DistributedDataParallel, Model, each, failed, grad_of, run, verdict


def body(rank):
    module = Model(**{name: torch.zeros(1) for name in ("ab", "ba")[rank.number]})

    def train():
        model = DistributedDataParallel(module)
        (model("a", 1.0) + module("b", 10.0)).backward()

    rank.attempt("training", train)
    for name in "ab":
        rank.report(name, grad_of(module, name))


seen = run(body)
verdict(
    shown=each(seen, "training", "ok") and each(seen, "a", [5.5]) and each(seen, "b", [5.5]),
    right=failed(seen, "training") or each(seen, "a", [1.0]) and each(seen, "b", [10.0]),
)
