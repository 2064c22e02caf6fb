"""The application flushes subnormal numbers to zero, and so does the reducer: the mean of 1e-38 on both ranks is 0
(G9)."""

import torch
from ranks import each, grad_of, model_of, run, verdict


def body(rank):
    torch.set_flush_denormal(True)
    model = model_of()
    model("p", 1e-38).backward()
    torch.set_flush_denormal(False)
    rank.report("is zero", grad_of(model) == [0.0])


seen = run(body)
verdict(shown=each(seen, "is zero", True), right=each(seen, "is zero", False))
