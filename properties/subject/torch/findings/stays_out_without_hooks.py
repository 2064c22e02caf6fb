"""Dynamic mode; the output of rank 1 depends on no parameter. Rank 1 joins no collective, and rank 0 waits for it
(P8)."""

import time
import torch
from ranks import TIMEOUT_SECONDS, each, failed, model_of, run, verdict


def body(rank):
    model = model_of(find_unused_parameters=True)
    constant = torch.zeros(1, requires_grad=True)

    def train():
        loss = model("p" if rank.number == 0 else "", 1.0)
        (loss + constant.sum()).backward()

    rank.attempt("backward", train)
    time.sleep(TIMEOUT_SECONDS + 1)


first, second = seen = run(body)
verdict(shown=second["backward"] == "ok" and failed([first], "backward"), right=each(seen, "backward", "ok"))
