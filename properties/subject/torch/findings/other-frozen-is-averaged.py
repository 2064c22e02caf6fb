"""Rank 0 has b frozen, rank 1 a, of one shape: a is averaged with b, without an error (B4)."""

import torch
from ranks import DistributedDataParallel, Model, each, failed, grad_of, run, verdict


def body(rank):
    module = Model(a=torch.zeros(1), b=torch.zeros(1))
    getattr(module, "ba"[rank.number]).requires_grad_(False)

    def train():
        model = DistributedDataParallel(module)
        model("ab"[rank.number], 1.0 + 9 * rank.number).backward()

    rank.attempt("training", train)
    rank.report("trained", grad_of(module, "ab"[rank.number]))


seen = run(body)
verdict(shown=each(seen, "training", "ok") and each(seen, "trained", [5.5]), right=failed(seen, "training"))
