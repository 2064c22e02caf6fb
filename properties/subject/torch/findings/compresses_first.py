"""Three ranks, of which one has a gradient: the hook that compresses rounds to float16 and then divides in float16,
so that it rounds twice (S4)."""

import torch
from ranks import each, model_of, run, verdict
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook


def body(rank):
    model = model_of(size=1000)
    model.register_comm_hook(None, fp16_compress_hook)
    values = torch.rand(1000, generator=torch.Generator().manual_seed(0))
    model("p", values if rank.number == 0 else torch.zeros(1000)).backward()
    twice, once = (values.half() / 3).float(), (values / 3).half().float()
    rank.report("rounded twice", bool((model.module.p.grad == twice).all()))
    rank.report("rounded once", bool((model.module.p.grad == once).all()))


seen = run(body, world=3)
verdict(
    shown=each(seen, "rounded twice", True) and each(seen, "rounded once", False),
    right=each(seen, "rounded once", True),
)
