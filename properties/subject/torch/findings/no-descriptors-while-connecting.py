"""Rank 1 of three gets no more file descriptors while the ranks connect a group with a timeout of 4 s: another rank
waits five times as long, or has a group that rank 1 is not in (F1, F2); which of them, the ports decide, so it is tried
up to twelve times. From 2.9.1 on Gloo ends the process of rank 1 besides. Expected: each rank raises, in time."""

import resource
import threading
import time
from datetime import timedelta
from ranks import TIMEOUT_SECONDS, dist, run, torch, verdict

LIMIT = timedelta(seconds=TIMEOUT_SECONDS)


def body(rank):
    def store_of(port, is_server=False):
        return dist.TCPStore("127.0.0.1", port, 3, is_server, timedelta(seconds=20), wait_for_workers=False)

    def take_descriptors():  # once rank 1 has told the others where it listens
        while watch.num_keys() == keys:
            time.sleep(0.001)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
        watch.set("taken", "1")

    server = store_of(0, True) if rank.number == 0 else None
    port = torch.tensor([server.port if server else 0])
    dist.broadcast(port, 0)
    store, watch = store_of(int(port)), store_of(int(port))
    dist.barrier()
    keys = watch.num_keys()
    dist.barrier()
    threading.Thread(target=take_descriptors).start() if rank.number == 1 else watch.wait(["taken"])
    rank.attempt("group", lambda: dist.ProcessGroupGloo(store, rank.number, 3, LIMIT))


def is_shown(others):
    return any(one["group"] == "ok" or (one["group seconds"] or 0) > 4 * TIMEOUT_SECONDS for one in others)


shown = any(is_shown(run(body, world=3)[::2]) for _ in range(12))
verdict(shown=shown, right=not shown)
