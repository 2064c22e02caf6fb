"""lockstep.torch.DistributedDataParallel beside PyTorch's own, and what it must do where that one has no answer.

    PYTHONPATH=build/release/lockstep-python python3 torch_reducer_test.py [NAME...]

A test is a function test_*; its docstring is the claim. It runs on ranks that are processes.
"""

import copy
import os
import signal
import sys
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "testing"))
from rank_processes import join_group, on_ranks

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as TorchDDP

import lockstep.torch as lt

LockstepDDP = lt.DistributedDataParallel


class Net(nn.Module):
    """Two branches, of which a forward may leave one out; a frozen parameter, and a buffer."""

    def __init__(self, whole_numbers):
        super().__init__()
        self.first, self.second, self.branch = nn.Linear(6, 5), nn.Linear(5, 3, bias=False), nn.Linear(5, 3)
        self.frozen = nn.Parameter(torch.arange(5), requires_grad=False)
        self.register_buffer("count", torch.zeros(2))
        if whole_numbers:
            generator = torch.Generator().manual_seed(3)
            with torch.no_grad():
                for each in (*self.first.parameters(), *self.second.parameters(), *self.branch.parameters()):
                    each.copy_(torch.randint(-3, 4, each.shape, generator=generator))

    def forward(self, x, with_branch=True):
        self.count += 1
        hidden = self.first(x).relu() + self.frozen
        return self.second(hidden) + self.branch(hidden) if with_branch else self.second(hidden)


def inputs(rank, step, whole_numbers):
    generator = torch.Generator().manual_seed(100 * rank + step)
    if whole_numbers:
        return torch.randint(-4, 5, (4, 6), generator=generator).float()
    return torch.randn(4, 6, generator=generator)


def gradients(module):
    return {name: None if each.grad is None else each.grad.clone() for name, each in module.named_parameters()}


def train(make, rank, options, no_sync, whole_numbers, uses_branch, set_to_none):
    """Five steps, some of several micro batches. The gradients after each."""
    torch.manual_seed(0)
    module = Net(whole_numbers)
    wrapped = make(module, **options)
    optimizer = torch.optim.SGD(module.parameters(), lr=0 if whole_numbers else 0.001)
    seen = []
    for step in range(5):
        optimizer.zero_grad(set_to_none=set_to_none)
        with_branch = uses_branch(rank, step)
        if no_sync:
            with wrapped.no_sync():
                for micro in range(2):
                    wrapped(inputs(rank, 10 * step + micro, whole_numbers), with_branch).sum().backward()
        wrapped(inputs(rank, step, whole_numbers), with_branch).pow(2).sum().backward()
        seen.append(gradients(module))
        optimizer.step()
    seen.append({name: each.clone() for name, each in module.state_dict().items()})
    return seen


def same(one, other):
    if one is None or other is None:
        return one is other
    return torch.equal(one, other)


def differences(first, second):
    return ["step %d, %s" % (step, name) for step, (a, b) in enumerate(zip(first, second)) for name in a
            if not same(a[name], b[name])]


def always(rank, step):
    return True


def sometimes(rank, step):
    return (rank + step) % 2 == 0


def never(rank, step):
    return False


GRID = [(views, mode, no_sync, set_to_none) for views in (False, True) for mode in ("plain", "dynamic", "static", "dynamic none")
        for no_sync in (False, True) for set_to_none in (True, False)]


def run_grid(rank, whole_numbers, order):
    wrong = []
    for views, mode, no_sync, set_to_none in GRID:
        options = {"gradient_as_bucket_view": views}
        if mode.startswith("dynamic"):
            options["find_unused_parameters"] = True
        if mode == "static":
            options["static_graph"] = True
        uses = {"plain": always, "static": never, "dynamic": sometimes, "dynamic none": never}[mode]
        arguments = (rank, options, no_sync, whole_numbers, uses, set_to_none)
        if mode == "static" and no_sync:  # DDP has no such programs; dynamic mode has the same gradients
            expected = train(TorchDDP, rank, {"find_unused_parameters": True}, *arguments[2:])
        else:
            expected = train(TorchDDP, *arguments)
        arguments = (rank, dict(options, order=order), *arguments[2:])
        got = train(LockstepDDP, *arguments)
        wrong += ["%s %s: %s" % ("views" if views else "copies", (mode, no_sync, set_to_none), each)
                  for each in differences(expected, got)]
    return wrong


def expect_no_difference(results):
    for rank, wrong in enumerate(results):
        assert not wrong, "rank %d: %d differences, first %s" % (rank, len(wrong), wrong[:5])


def test_whole_numbers_have_the_bits_of_ddp():
    expect_no_difference(on_ranks(2, run_grid, True, "native"))


def test_whole_numbers_have_them_on_four_ranks_in_rank_order():
    expect_no_difference(on_ranks(4, run_grid, True, "rank"))


def test_floats_on_two_ranks_have_the_bits_of_ddp():
    expect_no_difference(on_ranks(2, run_grid, False, "native"))


def main(names):
    tests = {name: each for name, each in globals().items() if name.startswith("test_")}
    unknown = [name for name in names if name not in tests]
    if unknown:
        sys.exit("there is no test %s" % unknown[0])
    failed = 0
    for name, test in tests.items():
        if names and name not in names:
            continue
        begin = time.monotonic()
        try:
            test()
            verdict = "ok"
        except Exception:
            verdict = "FAIL\n" + traceback.format_exc()
            failed += 1
        print("%-60s %5.1f s  %s" % (name, time.monotonic() - begin, verdict), flush=True)
    print("%d of %d tests failed" % (failed, len(names) or len(tests)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
