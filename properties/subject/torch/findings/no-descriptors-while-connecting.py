"""Rank 1 of three gets no more file descriptors while the ranks connect a group with a timeout of 4 s: another rank
waits five times as long, and is not told which rank is missing (F1, F2). From 2.9.1 on Gloo ends the process of rank 1
besides, and a rank may have a group that rank 1 is not in. Expected: each rank raises, in time."""

import datetime
import resource
import threading
import time
from ranks import TIMEOUT_SECONDS, dist, run, torch, verdict

LIMIT = datetime.timedelta(seconds=TIMEOUT_SECONDS)


def store_of(rank):
    port = torch.zeros(1, dtype=torch.long)
    if rank.number == 0:
        store = dist.TCPStore("127.0.0.1", 0, 3, True, LIMIT, wait_for_workers=False)
        port[0] = store.port
    dist.broadcast(port, 0)
    return store if rank.number == 0 else dist.TCPStore("127.0.0.1", int(port), 3, False, LIMIT, wait_for_workers=False)


def body(rank):
    store = store_of(rank)
    dist.barrier()
    if rank.number == 1:  # when it waits for the others to connect
        threading.Timer(0.7, resource.setrlimit, (resource.RLIMIT_NOFILE, (3, 3))).start()
    else:
        time.sleep(1.5)
    rank.attempt("group", lambda: dist.ProcessGroupGloo(store, rank.number, 3, LIMIT))


seen = run(body, world=3)
others = [one["group seconds"] or 0 for one in (seen[0], seen[2])]
verdict(shown=max(others) > 4 * TIMEOUT_SECONDS, right=max(others) < 2 * TIMEOUT_SECONDS)
