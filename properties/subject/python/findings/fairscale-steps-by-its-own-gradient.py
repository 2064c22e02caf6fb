"""fairscale's ShardedDataParallel with OSS. Since PyTorch 2.0 the optimizer's zero_grad() sets gradients to None, which
were views of a bucket: from the second step on the bucket is reduced without them, and the rank that owns a parameter
steps by its own gradient. Expected: the mean, as in the first step."""

import torch
from ranks import Model, dist, each, not_there, run, verdict

try:
    from fairscale.nn.data_parallel import ShardedDataParallel
    from fairscale.optim.oss import OSS
except ImportError:
    not_there("fairscale")


def body(rank):
    module = Model(p=torch.zeros(2), q=torch.zeros(2))
    optimizer = OSS(module.parameters(), torch.optim.SGD, lr=1.0)
    model = ShardedDataParallel(module, optimizer)
    for step in "12":
        optimizer.zero_grad()
        model("pq", 1.0 + 2 * rank.number).backward()
        optimizer.step()
        rank.report("weight after step " + step, module.p.tolist() + module.q.tolist())
    dist.barrier()


seen = run(body)
first = each(seen, "weight after step 1", [-2.0] * 4)
second = seen[0]["weight after step 2"]
verdict(
    shown=first and all(value in (-3.0, -5.0) for value in second or [0.0]),
    right=first and each(seen, "weight after step 2", [-4.0] * 4),
)
