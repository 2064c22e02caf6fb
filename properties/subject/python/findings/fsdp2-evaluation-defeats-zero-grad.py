"""FSDP2 with its default reshard_after_forward. A forward under no_grad after the backward leaves the module with
gathered parameters, which have no gradients: module.zero_grad() then clears nothing, and the next backward adds to the
gradients of the step before. Expected: zero_grad() clears, so that the gradient is that of the last batch."""

import torch
from ranks import Model, each, fsdp2, run, verdict

shard = fsdp2()


def body(rank):
    model = shard(Model(p=torch.zeros(4)))
    model("p", 8.0).backward()
    with torch.no_grad():
        model("p", 1.0)
    model.zero_grad()
    model("p", 1.0).backward()
    rank.report("gradient", model.p.grad.full_tensor().tolist())


seen = run(body)
verdict(shown=each(seen, "gradient", [9.0] * 4), right=each(seen, "gradient", [1.0] * 4))
