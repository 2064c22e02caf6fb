"""Rank 2 of three exits, or is killed, before a backward: the others raise at once, and every later pass raises
(F2)."""

import os
import signal
from ranks import TIMEOUT_SECONDS, each, failed, is_end_of_connection, model_of, run, verdict


def survivors(how):
    def body(rank):
        model = model_of("abcd", 1000, bucket_cap_mb=0.004)
        model("abcd", 1.0).backward()
        loss = model("abcd", 1.0)
        if rank.number == 2:
            os._exit(3) if how == "exits" else os.kill(os.getpid(), signal.SIGKILL)
        rank.attempt("backward", loss.backward)
        rank.attempt("next pass", lambda: model("abcd", 1.0).backward())

    return run(body, world=3)[:2]


seen = survivors("exits") + survivors("is killed")
verdict(
    shown=all(is_end_of_connection(one["backward"]) and one["backward seconds"] < TIMEOUT_SECONDS for one in seen)
    and failed(seen, "next pass"),
    right=False,
)
