"""After a join has ended on all ranks, each forward still starts the three all-reduces of a join, and takes buffers
from the highest rank instead of rank 0 (S2)."""

import torch
import torch.distributed as dist
from ranks import DistributedDataParallel, Model, each, run, verdict
from torch.distributed.algorithms.join import Join


def body(rank):
    module = Model(p=torch.zeros(1))
    module.register_buffer("seen", torch.zeros(1))
    model = DistributedDataParallel(module)
    with Join([model]):
        model("p", 1.0).backward()
    calls, all_reduce = [], dist.all_reduce

    def counted(*arguments, **options):
        calls.append(None)
        return all_reduce(*arguments, **options)

    dist.all_reduce = counted
    module.seen.fill_(rank.number + 1.0)
    model("p", 1.0)
    rank.report("all-reduces of a forward", len(calls))
    rank.report("buffer", module.seen.tolist())


seen = run(body)
verdict(
    shown=each(seen, "all-reduces of a forward", 3) and each(seen, "buffer", [2.0]),
    right=each(seen, "all-reduces of a forward", 0) and each(seen, "buffer", [1.0]),
)
