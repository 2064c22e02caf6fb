"""The second forward rebuilds the buckets and then broadcasts buffers (T2, B2)."""

import torch
import torch.distributed as dist
from ranks import DistributedDataParallel, Model, each, run, verdict


def body(rank):
    dist._DEFAULT_FIRST_BUCKET_BYTES = 4
    module = Model(a=torch.zeros(1), b=torch.zeros(2))
    module.register_buffer("seen", torch.zeros(1))
    model = DistributedDataParallel(module)
    model("ab", 1.0).backward()
    calls, broadcast, reducer = [], dist._broadcast_coalesced, model.reducer

    class Noting:
        def _rebuild_buckets(self):
            calls.append("rebuild")
            return reducer._rebuild_buckets()

        def __getattr__(self, name):
            return getattr(reducer, name)

    def noted(*arguments):
        calls.append("buffers")
        return broadcast(*arguments)

    dist._broadcast_coalesced, model.reducer = noted, Noting()
    model("ab", 1.0)
    rank.report("calls", calls)


seen = run(body)
verdict(shown=each(seen, "calls", ["rebuild", "buffers"]), right=each(seen, "calls", ["buffers", "rebuild"]))
