"""Memory and threads of a training loop stay as they are from its first steps on, whatever mode it is in.

    PYTHONPATH=build/release/lockstep-python [LOCKSTEP_TORCH_STEPS=10000] python3 torch_steady_test.py [NAME...]

A test is a function test_*, and its name the claim. It runs on ranks that are processes.
"""

import gc
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "testing"))
from rank_processes import on_ranks, run_claims

import torch
from torch import nn

import lockstep.torch as lt

STEPS = int(os.environ.get("LOCKSTEP_TORCH_STEPS", 200))
WARM_UP = STEPS // 4
GROWTH_KIB = 2048  # of the resident memory: the allocator's, not the steps'; 10,000 steps have the same bound
LIMIT_S = max(300, STEPS // 10)


def status_of(name):
    with open("/proc/self/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))


def run_loop(rank, options, leaks):
    """What the resident memory grew by after the warm-up, in KiB, and the numbers of threads."""
    torch.manual_seed(1)
    parts = [nn.Linear(16, 16) for _ in range(20)]
    module = nn.Sequential(nn.Embedding(50, 16, sparse=True), *parts)
    wrapped = lt.DistributedDataParallel(module, **options)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.001)
    kept, seen = [], {}
    for step in range(STEPS):
        if step in (WARM_UP, STEPS - 1):
            gc.collect()
            seen[step] = status_of("VmRSS"), status_of("Threads")
        x = torch.randint(0, 50, (4,), generator=torch.Generator().manual_seed(2 * step + rank))
        if step % 3 == 1:
            with wrapped.no_sync():
                wrapped(x).sum().backward()
        wrapped(x).pow(2).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=step % 5 != 0)
        if leaks:
            kept.append(torch.ones(1 << 16))
    (before, threads), (after, threads_after) = seen[WARM_UP], seen[STEPS - 1]
    return after - before, threads, threads_after


def run_modes(rank):
    found = []
    for options in ({}, {"gradient_as_bucket_view": True}, {"find_unused_parameters": True}, {"static_graph": True},
                    {"order": "rank"}, {"order": "rank", "verify_payload": True}):
        grown, threads, threads_after = run_loop(rank, options, leaks=False)
        if grown > GROWTH_KIB or threads != threads_after:
            found.append("%s: %d KiB more, %d threads and then %d" % (options, grown, threads, threads_after))
    return found


def test_memory_and_threads_are_steady():
    for rank, found in enumerate(on_ranks(2, run_modes, limit_s=LIMIT_S)):
        assert not found, "rank %d: %s" % (rank, found)


def test_a_loop_that_keeps_memory_is_found():
    for grown, _, _ in on_ranks(2, run_loop, {}, True, limit_s=LIMIT_S):
        assert grown > GROWTH_KIB, grown


def run_wrappers(rank):
    """Wrappers that are made and dropped."""
    seen = []
    for turn in range(16):
        module = nn.Linear(4, 4)
        wrapped = lt.DistributedDataParallel(module)
        wrapped(torch.ones(1, 4)).sum().backward()
        del wrapped
        gc.collect()
        seen.append((status_of("Threads"), len(os.listdir("/proc/self/fd"))))
    return seen


def test_dropped_wrappers_leave_no_threads_and_no_files():
    for seen in on_ranks(2, run_wrappers):
        assert max(seen[8:]) <= max(seen[:8]), seen


if __name__ == "__main__":
    sys.exit(run_claims(globals(), sys.argv[1:]))
