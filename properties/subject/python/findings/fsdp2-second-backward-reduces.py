"""FSDP2. Two forwards with a backward each, without zero_grad in between. Each backward reduces what it gave, and the
gradients are the sums of both averages. The contract has an error for a second backward of one pass (P7), and
DistributedDataParallel leaves it local."""

import torch
from ranks import Model, each, fsdp2, failed, run, verdict

shard = fsdp2()


def body(rank):
    model = shard(Model(p=torch.zeros(4)))
    first, second = model("p", 10.0 * (rank.number + 1)), model("p", 2.0 * (rank.number + 1))
    first.backward()
    rank.attempt("second", second.backward)
    rank.report("p", model.p.grad.full_tensor().tolist())


seen = run(body)
verdict(shown=each(seen, "second", "ok") and each(seen, "p", [18.0] * 4), right=failed(seen, "second"))
