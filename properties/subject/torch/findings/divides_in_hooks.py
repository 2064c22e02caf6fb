"""Three ranks: the built-in hook that averages has other bits than a run without a hook, which it is documented to
equal (S4)."""

import torch
from ranks import each, model_of, run, verdict
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook


def body(rank):
    means = []
    values = torch.rand(1000, generator=torch.Generator().manual_seed(rank.number))
    for hook in (None, allreduce_hook):
        model = model_of(size=1000)
        if hook:
            model.register_comm_hook(None, hook)
        model("p", values).backward()
        means.append(model.module.p.grad)
    rank.report("elements that differ", int((means[0] != means[1]).sum()))


seen = run(body, world=3)
verdict(
    shown=all((one["elements that differ"] or 0) > 0 for one in seen), right=each(seen, "elements that differ", 0)
)
