"""The hook of rank 0 returns a future that nothing completes: its backward waits for ever, whatever the group's
timeout (F1, S4)."""

import torch
from ranks import TIMEOUT_SECONDS, model_of, run, verdict


def body(rank):
    model = model_of()
    futures = []

    def hook(state, bucket):
        futures.append(torch.futures.Future())
        if rank.number == 1:
            futures[-1].set_result(bucket.buffer())
        return futures[-1]

    model.register_comm_hook(None, hook)
    rank.attempt("backward", model("p", 1.0).backward)


first, second = run(body, seconds=3 * TIMEOUT_SECONDS)
verdict(
    shown=first["end"] == "hangs" and second["backward"] == "ok",
    right=first["end"] == "ok" and first["backward"] != "ok",
)
