"""Wrappers of lockstep.torch and threads: who may train, drop outputs and ask, and in which thread.

    PYTHONPATH=build/release/lockstep-python python3 torch_threads_test.py [NAME...]

A test is a function test_*, and its name the claim. It runs on ranks that are processes. `run_test.sh races` runs the tests
with an extension that is compiled with ThreadSanitizer, which reports what two threads do to the same memory.
"""

import os
import queue
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "testing"))
from rank_processes import on_ranks, run_claims

import torch
from torch import nn

import lockstep.torch as lt

STEPS = 30
MODES = ({}, {"gradient_as_bucket_view": True}, {"find_unused_parameters": True}, {"order": "rank"})


def make(seed, options):
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    return module, lt.DistributedDataParallel(module, bucket_cap_mb=0.0001, **options)


def inputs(rank, step):
    return torch.randn(5, 4, generator=torch.Generator().manual_seed(100 * step + rank))


def train(module, wrapped, rank):
    """The state after some steps."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    for step in range(STEPS):
        optimizer.zero_grad()
        wrapped(inputs(rank, step)).pow(2).sum().backward()
        optimizer.step()
    return {name: each.clone() for name, each in module.state_dict().items()}


def differences(one, other):
    return [name for name in one if not torch.equal(one[name], other[name])]


def in_threads(*calls):
    """What the calls return, each in a thread of its own, at the same time."""
    results = [None] * len(calls)

    def run(index):
        results[index] = calls[index]()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def run_two_models(rank):
    wrong = []
    for options in MODES:
        expected = [train(*make(seed, options), rank) for seed in (1, 2)]
        made = [make(seed, options) for seed in (1, 2)]
        got = in_threads(*(lambda one=one: train(*one, rank) for one in made))
        for one, other in zip(expected, got):
            found = ["no result"] if other is None else differences(one, other)
            wrong += ["%s: %s" % (options, found)] if found else []
    return wrong


def expect_nothing(results):
    for rank, wrong in enumerate(results):
        assert not wrong, "rank %d: %s" % (rank, wrong)


def test_two_threads_train_two_models():
    expect_nothing(on_ranks(2, run_two_models))


def run_dropped_outputs(rank):
    wrong = []
    for options in MODES:
        expected = train(*make(3, {**options, "forward_sync_buffers": False}), rank)
        module, wrapped = make(3, {**options, "forward_sync_buffers": False})
        outputs, begun = queue.Queue(), []

        def drop():
            while outputs.get() is not None:
                begun.append(1)

        dropper = threading.Thread(target=drop)
        dropper.start()
        optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
        for step in range(STEPS):
            optimizer.zero_grad()
            module[1].eval()  # which leaves the statistics as they are
            outputs.put([wrapped(inputs(rank, step))])
            module[1].train()
            wrapped(inputs(rank, step)).pow(2).sum().backward()
            optimizer.step()
        outputs.put(None)
        dropper.join()
        found = differences(expected, module.state_dict())
        wrong += ["%s: %s" % (options, found)] if found or len(begun) != STEPS else []
    return wrong


def test_another_thread_drops_outputs_that_nobody_uses():
    expect_nothing(on_ranks(2, run_dropped_outputs))


def run_asked(rank):
    """The thread that serves Ctrl-C asks this in the middle of whatever happens."""
    wrong = []
    for options in MODES:
        expected = train(*make(4, options), rank)
        module, wrapped = make(4, options)
        ends, answers = threading.Event(), set()

        def ask():
            while not ends.is_set():
                answers.add(wrapped._reducer.is_busy())

        asker = threading.Thread(target=ask)
        asker.start()
        found = differences(expected, train(module, wrapped, rank))
        ends.set()
        asker.join()
        wrong += ["%s: %s %s" % (options, found, answers)] if found or not answers else []
    return wrong


def test_another_thread_asks_whether_a_wrapper_is_busy():
    expect_nothing(on_ranks(2, run_asked))


def run_backward_elsewhere(rank):
    """Each forward and each backward is made by another thread than the one before, also with a hook in Python."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    wrong = []
    for options, hook in [(one, None) for one in MODES] + [({}, default_hooks.fp16_compress_hook)]:
        states = []
        for elsewhere in (False, True):
            module, wrapped = make(5, options)
            if hook:
                wrapped.register_comm_hook(None, hook)
            optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
            call = (lambda what: in_threads(what)[0]) if elsewhere else lambda what: what()
            for step in range(STEPS):
                optimizer.zero_grad()
                loss = call(lambda: wrapped(inputs(rank, step)).pow(2).sum())
                call(loss.backward)
                optimizer.step()
            states.append(dict(module.state_dict()))
        found = differences(*states)
        wrong += ["%s: %s" % (options, found)] if found else []
    return wrong


def test_another_thread_makes_each_forward_and_each_backward():
    expect_nothing(on_ranks(2, run_backward_elsewhere))


if __name__ == "__main__":
    sys.exit(run_claims(globals(), sys.argv[1:]))
