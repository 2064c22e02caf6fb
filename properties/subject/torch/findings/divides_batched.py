"""Three ranks: with batched_grad_copy a bucket is divided by 3, without it each gradient is multiplied by 1/3. The
option, which is there for speed, changes the bits of the mean (G2). A version without it has nothing to show."""

import torch
from ranks import each, model_of, run, takes, verdict


def body(rank):
    values = torch.rand(1000, generator=torch.Generator().manual_seed(rank.number))
    means = []
    for options in ({}, {"batched_grad_copy": True} if takes("batched_grad_copy") else {}):
        model = model_of(size=1000, **options)
        model("p", values).backward()
        means.append(model.module.p.grad.clone())
    rank.report("elements that differ", int((means[0] != means[1]).sum()))


seen = run(body, world=3)
verdict(
    shown=all((one["elements that differ"] or 0) > 0 for one in seen), right=each(seen, "elements that differ", 0)
)
