"""Rank 2 exits before its backward. The errors of the others name neither the rank nor the collective (F2)."""

import os
from ranks import failed, model_of, run, verdict


def body(rank):
    model = model_of("ab", 1000, bucket_cap_mb=0.004)
    model("ab", 1.0).backward()
    loss = model("ab", 1.0)
    if rank.number == 2:
        os._exit(3)
    rank.attempt("backward", loss.backward)


survivors = run(body, world=3)[:2]
named = [
    any(word in (one["backward"] or "").lower() for word in ("rank 2", "rank: 2", "rank=2")) for one in survivors
]
verdict(shown=failed(survivors, "backward") and not all(named), right=failed(survivors, "backward") and all(named))
