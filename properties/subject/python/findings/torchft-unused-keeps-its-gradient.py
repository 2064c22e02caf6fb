"""torchft. Rank 0 does not use q. torchft's DistributedDataParallel gives the reducer a group of one rank, which takes
what this rank does not use for what no rank uses: q.grad stays None on rank 0 and is the average on rank 1, without an
error, and should_commit() says yes. Expected: the average on both (G7)."""

import datetime
import os

os.environ.setdefault("RUST_LOG", "error")  # what its servers print
from ranks import Model, dist, each, grad_of, not_there, run, torch, verdict

try:
    import torchft
    from torchft._torchft import LighthouseServer
except ImportError:
    not_there("torchft")
LIMIT = datetime.timedelta(seconds=20)


def body(rank):
    server = LighthouseServer(bind="127.0.0.1:0", min_replicas=2) if rank.number == 0 else None
    port = torch.tensor(int(server.address().rsplit(":", 1)[1]) if server else 0)
    dist.broadcast(port, 0)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = torchft.Manager(
        pg=torchft.ProcessGroupGloo(timeout=LIMIT), load_state_dict=None, state_dict=None, min_replica_size=2,
        use_async_quorum=False, init_sync=False, timeout=LIMIT, quorum_timeout=LIMIT, connect_timeout=LIMIT, rank=0,
        world_size=1, store_addr="127.0.0.1", store_port=store.port, replica_id="rank_%d" % rank.number,
        lighthouse_addr="http://127.0.0.1:%d" % port, hostname="127.0.0.1")
    model = torchft.DistributedDataParallel(manager, Model(p=torch.zeros(1), q=torch.zeros(1)))
    manager.start_quorum()
    rank.attempt("backward", model("p" if rank.number == 0 else "pq", 8.0).backward)
    rank.report("commits", manager.should_commit())
    rank.report("q", grad_of(model, "q"))
    dist.barrier()


seen = run(body)
done = each(seen, "backward", "ok") and each(seen, "commits", True)
verdict(shown=done and each(seen, "q", None, [4.0]), right=done and each(seen, "q", [4.0]))
