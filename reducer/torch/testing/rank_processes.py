"""Runs a function on several ranks, each a process that is forked from this one, with a process group of torch.distributed.

    results = on_ranks(2, function, argument)     # what function(rank, argument) returned on each rank

A rank that raises, ends or hangs fails the call with its traceback. `may_end` names ranks that are allowed to end without
a result; theirs is None. Nothing is left behind.
"""

import datetime
import os
import pickle
import select
import signal
import sys
import tempfile
import time
import traceback

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
os.environ.setdefault("GLOG_minloglevel", "2")

import torch
import torch.distributed as dist

torch.set_num_threads(1)
try:  # DistributedDataParallel loads it when it is constructed, which takes seconds in each rank
    import torch._dynamo
except ImportError:
    pass

LIMIT_S = 120  # of one call, on a busy machine


class RankFailed(AssertionError):
    pass


def join_group(file, rank, world, timeout_s=60):
    store = dist.FileStore(file, world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world,
                            timeout=datetime.timedelta(seconds=timeout_s))


def run_rank(pipe, file, rank, world, function, arguments):
    # PyTorch makes its pool of threads anew in the first call after a fork. Where that call comes from two threads at once, one
    # of them can find no pool (1.13: "Invalid thread pool").
    torch.set_num_threads(1)
    try:
        join_group(file, rank, world)
        result = (True, function(rank, *arguments))
    except BaseException:
        result = (False, traceback.format_exc())
    with os.fdopen(pipe, "wb") as out:
        out.write(pickle.dumps(result))
    os._exit(0)


def fork_rank(*arguments):
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        run_rank(writer, *arguments)
    os.close(writer)
    return pid, reader


def read_all(readers, deadline):
    """What each rank wrote until its end of the pipe closed."""
    said = {reader: b"" for reader in readers}
    open_ones = set(readers)
    while open_ones and time.monotonic() < deadline:
        for reader in select.select(list(open_ones), [], [], 1)[0]:
            part = os.read(reader, 1 << 16)
            said[reader] += part
            if not part:
                open_ones.discard(reader)
    return [None if reader in open_ones else said[reader] for reader in readers]


def on_ranks(world, function, *arguments, may_end=(), limit_s=LIMIT_S):
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "store")
        ranks = [fork_rank(file, rank, world, function, arguments) for rank in range(world)]
        try:
            said = read_all([reader for _, reader in ranks], time.monotonic() + limit_s)
        finally:
            for pid, reader in ranks:
                os.close(reader)
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
    results = []
    for rank, data in enumerate(said):
        if data is None:
            raise RankFailed("rank %d does not end within %d s" % (rank, limit_s))
        if not data:
            if rank not in may_end:
                raise RankFailed("rank %d ended without a result" % rank)
            results.append(None)
            continue
        is_ok, result = pickle.loads(data)
        if not is_ok:
            raise RankFailed("rank %d raised:\n%s" % (rank, result))
        results.append(result)
    return results


def run_claims(module, names):
    """Runs the functions test_* of a module's globals(), or those that are named. Returns the exit code."""
    tests = {name: each for name, each in module.items() if name.startswith("test_")}
    unknown = [name for name in names if name not in tests]
    if unknown:
        print("there is no test %s" % unknown[0], file=sys.stderr)
        return 1
    failed = 0
    for name in names or tests:
        begin = time.monotonic()
        try:
            tests[name]()
            verdict = "ok"
        except Exception:
            verdict = "FAIL\n" + traceback.format_exc()
            failed += 1
        print("%-64s %5.1f s  %s" % (name, time.monotonic() - begin, verdict), flush=True)
    print("%d of %d tests failed" % (failed, len(names or tests)))
    return 1 if failed else 0
