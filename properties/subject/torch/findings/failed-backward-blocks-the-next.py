"""A node raises in a backward, after the first gradient was ready and before any bucket was launched. Every later
forward raises, with the advice to look for unused parameters (P12)."""

import torch
from ranks import each, failed, model_of, run, verdict


class Raises(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise ValueError("the node raises")


def body(rank):
    model = model_of("ab")
    loss = Raises.apply(model.module.a * 1.0).sum() + model("b", 1.0)
    rank.attempt("backward", loss.backward)
    for index in range(2):
        rank.attempt("pass %d" % index, lambda: model("ab", 1.0).backward())


seen = run(body)
verdict(
    shown=failed(seen, "backward", "the node raises")
    and failed(seen, "pass 0", "parameters that were not used")
    and failed(seen, "pass 1", "parameters that were not used"),
    right=failed(seen, "backward", "the node raises") and each(seen, "pass 0", "ok") and each(seen, "pass 1", "ok"),
)
