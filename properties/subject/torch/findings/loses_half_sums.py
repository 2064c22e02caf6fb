"""Gloo's sum of some float16 leaves out what the other ranks contributed. The bits of 2618.0 are the number 26909,
whose nearest float16 is the sum, 26912: then 2618.0 stays (G1, G3)."""

import torch
from ranks import each, model_of, run, verdict
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook


def body(rank):
    model = model_of()
    model.register_comm_hook(None, fp16_compress_hook)
    for name, factors in (("lost", (5236.0, 48576.0)), ("kept", (48576.0, 5236.0))):
        model.zero_grad()
        model("p", factors[rank.number]).backward()
        rank.report(name, model.module.p.grad.item())


seen = run(body)
verdict(
    shown=each(seen, "lost", 2618.0) and each(seen, "kept", 26912.0),
    right=each(seen, "lost", 26912.0) and each(seen, "kept", 26912.0),
)
