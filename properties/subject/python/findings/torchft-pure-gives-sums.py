"""torchft's PureDistributedDataParallel begins an all-reduce for each gradient, and waits for none: what divides the
sum runs when somebody waits. After backward and should_commit() the gradient is the sum of the ranks, or what has
arrived of it. Expected: the mean, as torchft's DistributedDataParallel has it."""

import datetime
import os

os.environ.setdefault("RUST_LOG", "error")  # what its servers print
from ranks import Model, dist, not_there, run, torch, verdict

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
    module = Model(p=torch.zeros(1))
    model = torchft.ddp.PureDistributedDataParallel(manager, module)
    manager.start_quorum()
    model("p", 1.0 + 2 * rank.number).backward()
    rank.report("commits", manager.should_commit())
    rank.report("gradient", module.p.grad.item())
    dist.barrier()


seen = run(body)
got, commits = [one["gradient"] for one in seen], [one["commits"] for one in seen] == [True, True]
verdict(shown=commits and got != [2.0, 2.0] and None not in got, right=commits and got == [2.0, 2.0])
