"""backward(create_graph=True) gives averaged gradients, whose graph stays local (P16)."""

import torch
from ranks import each, failed, model_of, run, verdict


def body(rank):
    model = model_of()
    model.module.p.data.fill_(1.0)
    loss = model("p", 1.0) ** 2 * (1 + rank.number)
    rank.attempt("backward", lambda: loss.backward(create_graph=True))
    grad = model.module.p.grad
    rank.report("gradient, and whether it requires grad", (grad.tolist(), grad.requires_grad))


seen = run(body)
verdict(
    shown=each(seen, "backward", "ok") and each(seen, "gradient, and whether it requires grad", ([3.0], True)),
    right=failed(seen, "backward"),
)
