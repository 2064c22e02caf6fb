"""ranks: what the findings share: runs a body as one process per rank over Gloo, and ends with the verdict.

    def body(rank): ...                 # rank.number; rank.report(name, value); rank.attempt(name, call)
    first, second = run(body)           # what each rank reported, by name; "end" is "ok", an error, "hangs" or a signal
    verdict(shown=..., right=...)       # exit code 1: the finding; 0: what a user expects; 2: neither of the two

A script ends with exit code 3 where this Python lacks what it is about (not_there()). Any other error ends it with exit
code 2, too. Needs PyTorch alone.
"""

import datetime
import inspect
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import tempfile
import time
import traceback


def cannot_tell(kind, error, trace):
    traceback.print_exception(kind, error, trace)
    sys.stderr.flush()
    os._exit(2)


sys.excepthook = cannot_tell
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

CAN_RECONFIGURE = hasattr(dist, "_reconfigure")  # from 2.15 on
TIMEOUT_SECONDS = 4  # of a collective that a peer never joins
if torch.__version__ >= "2":
    import torch._dynamo  # noqa: F401  DistributedDataParallel does, in every rank, which takes seconds


class Model(torch.nn.Module):
    """Parameters by name; the output is the sum of the parameters that `used` names, times `factor`."""

    def __init__(self, **parameters):
        super().__init__()
        for name, value in parameters.items():
            self.register_parameter(name, torch.nn.Parameter(value))

    def forward(self, used, factor):
        return sum((getattr(self, name) * factor).sum() for name in used)


def model_of(names="p", size=1, **options):
    """DistributedDataParallel around a Model whose parameters have the letters of `names`."""
    return DistributedDataParallel(Model(**{name: torch.zeros(size) for name in names}), **options)


def takes(option):
    """Whether this version of DistributedDataParallel has the option."""
    return option in inspect.signature(DistributedDataParallel.__init__).parameters


def grad_of(model, name="p"):
    grad = getattr(getattr(model, "module", model), name).grad
    return None if grad is None else grad.to_dense().flatten().tolist() if grad.is_sparse else grad.flatten().tolist()


def not_there(what):
    print("PyTorch %s: there is no %s here" % (torch.__version__, what), flush=True)
    os._exit(3)


def import_torchft():
    """torchft, and a function that makes a rank's manager for a quorum of two over Gloo, with what the manager needs to live.
    It is imported before the ranks are forked."""
    os.environ.setdefault("RUST_LOG", "error")  # what its servers print
    try:
        import torchft
        from torchft._torchft import LighthouseServer
    except ImportError:
        not_there("torchft")
    limit = datetime.timedelta(seconds=20)

    def manager_of(rank):
        server = LighthouseServer(bind="127.0.0.1:0", min_replicas=2) if rank.number == 0 else None
        port = torch.tensor(int(server.address().rsplit(":", 1)[1]) if server else 0)
        dist.broadcast(port, 0)
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        manager = torchft.Manager(
            pg=torchft.ProcessGroupGloo(timeout=limit), load_state_dict=None, state_dict=None, min_replica_size=2,
            use_async_quorum=False, init_sync=False, timeout=limit, quorum_timeout=limit, connect_timeout=limit, rank=0,
            world_size=1, store_addr="127.0.0.1", store_port=store.port, replica_id="rank_%d" % rank.number,
            lighthouse_addr="http://127.0.0.1:%d" % port, hostname="127.0.0.1")  # fmt: skip
        return manager, (server, store)

    return torchft, manager_of


def fsdp2():
    """FSDP2's fully_shard over all ranks, as a function of a module. It is imported before the ranks are forked."""
    try:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        not_there("FSDP2")
    return lambda module, **options: fully_shard(
        module, mesh=init_device_mesh("cpu", (dist.get_world_size(),)), **options
    )


class Rank:
    def __init__(self, number, pipe):
        self.number, self.pipe = number, pipe

    def report(self, name, value):
        self.pipe.send((name, value))

    def attempt(self, name, call):
        """Reports "ok", or the first line of the error; returns whether the call succeeded."""
        begin = time.monotonic()
        try:
            call()
            result = "ok"
        except Exception as error:  # whatever PyTorch raises is what is looked at
            result = str(error).strip().split("\n")[0][:300]
        self.report(name, result)
        self.report(name + " seconds", round(time.monotonic() - begin, 1))
        return result == "ok"


def changeable_group(rank, world):
    """Replaces the group by one that reconfigure() can change in place; returns the store for it."""
    store = dist.PrefixStore("changeable", dist.distributed_c10d._get_default_store())
    dist.destroy_process_group()
    wait = datetime.timedelta(seconds=TIMEOUT_SECONDS)
    dist.init_process_group("gloo", None, wait, world, rank.number, store, enable_reconfigure=True)
    return store


def reconfigure(rank, store, members):
    """Makes `members` the ranks of the group, in this order; returns whether this rank is one of them."""
    key = "members %s, rank " % members
    store.set(key + str(rank.number), dist._get_reconfigure_handle())
    if rank.number not in members:
        return False
    handles = [store.get(key + str(member)).decode() for member in members]
    dist._reconfigure(len(members), handles).wait()  # a group has each number of members once here
    return True


def grow_under_a_model(rank, **options):
    """Two ranks train, and take a third one into their group; they keep their model, and the new rank builds its own.
    Reports the means of three passes of each group, as far as passes end."""
    store = changeable_group(rank, 3)
    model = None
    for members in ([0, 1], [0, 1, 2]):
        if not reconfigure(rank, store, members):
            continue
        model = model or model_of("pq", init_sync=False, **options)
        for number in "012":
            name = "%d ranks, pass %s" % (len(members), number)
            model.zero_grad()
            if rank.attempt(name, lambda: model("pq", 8.0 * rank.number).backward()):
                rank.report(name + ", mean", [round(value, 3) for value in grad_of(model)])


def serve(body, number, world, store, pipe):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method="file://" + store,
        rank=number,
        world_size=world,
        timeout=datetime.timedelta(seconds=TIMEOUT_SECONDS),
    )
    Rank(number, pipe).attempt("end", lambda: body(Rank(number, pipe)))
    pipe.close()
    os._exit(0)  # connections close now, as those of any process that ends


def how_ended(process):
    if process.exitcode is None:
        process.kill()
        process.join()
        return "hangs"
    return signal.Signals(-process.exitcode).name if process.exitcode < 0 else "exited with %d" % process.exitcode


class Seen(dict):
    """What a rank reported; of what it did not report, None."""

    def __missing__(self, name):
        return None


def run(body, world=2, seconds=60, watch=None):
    """Runs body(rank) in `world` processes, for `seconds` at most; meanwhile calls watch(processes, seen)."""
    context = multiprocessing.get_context("fork")  # this process runs no operation of torch
    seen = [Seen() for _ in range(world)]
    with tempfile.TemporaryDirectory() as folder:
        pipes, processes = [], []
        for number in range(world):
            ours, theirs = context.Pipe(duplex=False)
            arguments = (body, number, world, os.path.join(folder, "store"), theirs)
            processes.append(context.Process(target=serve, args=arguments, daemon=True))
            processes[-1].start()
            theirs.close()
            pipes.append(ours)
        limit = time.monotonic() + seconds
        still_open = set(pipes)
        while still_open and time.monotonic() < limit:
            for pipe in multiprocessing.connection.wait(list(still_open), 0.05):
                try:
                    name, value = pipe.recv()
                    seen[pipes.index(pipe)][name] = value
                except EOFError:
                    still_open.discard(pipe)
            if watch:
                watch(processes, seen)
        for number, process in enumerate(processes):
            process.join(max(0.0, limit - time.monotonic()) if pipes[number] not in still_open else 0)
            if "end" not in seen[number] or process.exitcode != 0:
                seen[number]["end"] = how_ended(process)
    for number, reported in enumerate(seen):
        for name, value in reported.items():
            if not name.endswith(" seconds"):
                print("rank %d: %s: %s" % (number, name, value))
    return seen


def each(seen, name, *values):
    """Whether the ranks reported `values`, in order; a single value holds for all of them."""
    return [one[name] for one in seen] == (list(values) * len(seen) if len(values) == 1 else list(values))


def failed(seen, name, text=""):
    """Whether every rank reported an error with `text` in it."""
    return all(one[name] not in (None, "ok") and text in one[name] for one in seen)


def is_end_of_connection(text):
    """What Gloo says of a peer that is gone: which of the two is a matter of time."""
    return text is not None and ("closed by peer" in text or "reset by peer" in text)


def verdict(shown, right):
    outcome = (
        "shown" if shown else "as expected" if right else "cannot tell: neither the finding nor what is expected"
    )
    print("PyTorch %s: %s" % (torch.__version__, outcome), flush=True)
    os._exit(1 if shown else 0 if right else 2)
