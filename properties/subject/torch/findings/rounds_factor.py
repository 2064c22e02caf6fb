"""Three ranks, float16: the factor 1/3 is rounded to float16 before it is multiplied (G2)."""

import torch
from ranks import DistributedDataParallel, Model, each, run, verdict


def body(rank):
    model = DistributedDataParallel(Model(p=torch.zeros(1000, dtype=torch.float16)))
    values = torch.arange(1.0, 1001.0).half() if rank.number == 0 else torch.zeros(1000).half()
    model("p", values).backward()
    third = torch.tensor(1 / 3)
    rank.report(
        "as if rounded",
        bool((model.module.p.grad == (torch.arange(1.0, 1001.0) * third.half().float()).half()).all()),
    )
    rank.report("as with a float", bool((model.module.p.grad == (torch.arange(1.0, 1001.0) * third).half()).all()))


seen = run(body, world=3)
verdict(
    shown=each(seen, "as if rounded", True) and each(seen, "as with a float", False),
    right=each(seen, "as with a float", True),
)
