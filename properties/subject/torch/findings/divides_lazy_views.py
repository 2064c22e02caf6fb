"""Three ranks, bucket views, gradients None before the pass: with lazy_bucket_allocation the gradient that is ready
first in its bucket is divided by 3, the others are multiplied by 1/3, as all are without the option. The mean of one
parameter has other bits, because of where it stands (G2). A version without the option has nothing to show."""

import torch
from ranks import each, model_of, run, takes, verdict


def body(rank):
    values = torch.rand(1000, generator=torch.Generator().manual_seed(rank.number))
    means = []
    for options in ({}, {"lazy_bucket_allocation": True} if takes("lazy_bucket_allocation") else {}):
        model = model_of(names="pq", size=1000, gradient_as_bucket_view=True, **options)
        model("pq", values).backward()
        means.append([parameter.grad.clone() for parameter in model.module.parameters()])
    for name, one, other in zip("pq", *means):
        rank.report("elements that differ of " + name, int((one != other).sum()))


seen = run(body, world=3)
same_p = each(seen, "elements that differ of p", 0)
verdict(
    shown=same_p and all((one["elements that differ of q"] or 0) > 0 for one in seen),
    right=same_p and each(seen, "elements that differ of q", 0),
)
