"""Rank 2 of three is stopped (SIGSTOP) before a backward: the others raise after the timeout of the group (F2)."""

import os
import signal
from ranks import failed, model_of, run, verdict


def body(rank):
    model = model_of("abcd", 1000, bucket_cap_mb=0.004)
    model("abcd", 1.0).backward()
    loss = model("abcd", 1.0)
    if rank.number == 2:
        os.kill(os.getpid(), signal.SIGSTOP)
    rank.attempt("backward", loss.backward)


def watch(processes, seen):
    if all("end" in one for one in seen[:2]) and processes[2].is_alive():
        processes[2].kill()


survivors = run(body, world=3, watch=watch)[:2]
verdict(shown=failed(survivors, "backward") and any("Timed out" in one["backward"] for one in survivors), right=False)
