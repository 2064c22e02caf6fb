"""FSDP2 with reshard_after_forward=True. Rank 0 runs one forward more than rank 1, for an evaluation. Each forward
gathers the parameters, so that the collectives of the ranks no longer match: a process ends, or a rank waits for the
timeout. Expected: a forward without gradients concerns its rank alone, and the averages are right (P1)."""

import torch
from ranks import Model, each, fsdp2, run, verdict

shard = fsdp2()


def body(rank):
    model = shard(Model(p=torch.zeros(4), q=torch.zeros(4)), reshard_after_forward=True)
    if rank.number == 0:
        with torch.no_grad():
            model("pq", 1.0)
    if rank.attempt("backward", lambda: model("pq", 8.0 * (rank.number + 1)).backward()):
        rank.report("p", model.p.grad.full_tensor().tolist())


seen = run(body)
verdict(
    shown=any(one["end"] == "SIGABRT" or one["backward"] not in (None, "ok") for one in seen),
    right=each(seen, "p", [12.0] * 4),
)
