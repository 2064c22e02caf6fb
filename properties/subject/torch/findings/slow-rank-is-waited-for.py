"""Rank 2 of three is slow by 2 s before a backward: the others wait, and the averages are right."""

import time
from ranks import each, grad_of, model_of, run, verdict


def body(rank):
    model = model_of("abcd", 10, bucket_cap_mb=0.00004)
    loss = model("abcd", 1.0 + rank.number)
    if rank.number == 2:
        time.sleep(2)
    rank.attempt("backward", loss.backward)
    rank.report("a", grad_of(model, "a"))


seen = run(body, world=3)
verdict(shown=each(seen, "backward", "ok") and each(seen, "a", [2.0] * 10), right=False)
