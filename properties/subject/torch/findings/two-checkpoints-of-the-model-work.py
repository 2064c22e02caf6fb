"""Two checkpoints around the whole model in one backward: each is reduced by itself, and the gradient is right
(P1)."""

import torch
from ranks import each, failed, grad_of, model_of, run, verdict
from torch.utils.checkpoint import checkpoint


def body(rank):
    model = model_of()
    inputs = torch.ones(1, requires_grad=True)

    def forward(factor):
        return model("p", factor * (1.0 + rank.number))

    loss = checkpoint(forward, inputs, use_reentrant=True) + checkpoint(forward, inputs * 3, use_reentrant=True)
    rank.attempt("backward", loss.sum().backward)
    rank.report("gradient", grad_of(model))


seen = run(body)
verdict(shown=each(seen, "backward", "ok") and each(seen, "gradient", [6.0]), right=failed(seen, "backward"))
