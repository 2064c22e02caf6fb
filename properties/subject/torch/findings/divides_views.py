"""Three ranks: a gradient that is its bucket view is divided by 3, any other is multiplied by 1/3. Whether
gradients are set to None or zeroed before a pass changes the bits of their mean (G2)."""

import torch
from ranks import each, model_of, run, verdict


def body(rank):
    model = model_of(size=1000, gradient_as_bucket_view=True)
    values = torch.rand(1000, generator=torch.Generator().manual_seed(rank.number))
    means = []
    for to_none in (True, True, False):  # the buckets are rebuilt after the first pass
        model.zero_grad(set_to_none=to_none)
        model("p", values).backward()
        means.append(model.module.p.grad.clone())
    rank.report("elements that differ", int((means[1] != means[2]).sum()))


seen = run(body, world=3)
verdict(
    shown=all((one["elements that differ"] or 0) > 0 for one in seen), right=each(seen, "elements that differ", 0)
)
