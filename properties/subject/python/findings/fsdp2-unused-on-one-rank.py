"""FSDP2. Rank 1 does not use q. The ranks reduce gradients of different lengths, and the process of one rank ends.
Expected: the average, with zeros of rank 1, as find_unused_parameters gives it (G7), or an error on each rank."""

import torch
from ranks import Model, each, failed, fsdp2, run, verdict

shard = fsdp2()


def body(rank):
    model = shard(Model(p=torch.zeros(4), q=torch.zeros(4)))
    if rank.attempt("backward", lambda: model(("pq", "p")[rank.number], 8.0).backward()):
        rank.report("q", model.q.grad.full_tensor().tolist())


seen = run(body)
verdict(
    shown=any(one["end"] == "SIGABRT" for one in seen),
    right=each(seen, "q", [4.0] * 4) or (each(seen, "end", "ok") and failed(seen, "backward")),
)
