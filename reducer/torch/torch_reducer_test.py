"""lockstep.torch.DistributedDataParallel beside PyTorch's own.

    PYTHONPATH=build/release/lockstep-python python3 torch_reducer_test.py [NAME...]

A test is a function test_*, and its name the claim. It runs on ranks that are processes.
"""

import copy
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "testing"))
from rank_processes import on_ranks, run_claims

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as TorchDDP

import lockstep.torch as lt
from lockstep.model import Stop

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


# ---- Options and dtypes ----


def train_simply(rank, make, module, forward, steps=4):
    wrapped = make(module)
    seen = []
    for step in range(steps):
        module.zero_grad()
        forward(wrapped, rank, step).backward()
        seen.append({name: each.grad if each.grad is None else each.grad.to_dense().clone() if each.grad.is_sparse
                     else each.grad.clone() for name, each in module.named_parameters()})
    seen.append({name: each.clone() for name, each in module.state_dict().items()})
    return seen


def beside_ddp(rank, module, forward, **options):
    expected = train_simply(rank, lambda each: TorchDDP(each, **options), copy.deepcopy(module), forward)
    got = train_simply(rank, lambda each: LockstepDDP(each, **options), module, forward)
    return differences(expected, got)


class Mixed(nn.Module):
    def __init__(self, *dtypes):
        super().__init__()
        self.parts = nn.ParameterList([nn.Parameter(torch.ones(3, dtype=dtype)) for dtype in dtypes])

    def forward(self, x):
        return sum((each.double() * x).sum() for each in self.parts)


def run_mixed_dtypes(rank):
    wrong = beside_ddp(rank, Mixed(torch.float16, torch.float32, torch.float64),
                       lambda wrapped, rank, step: wrapped(float(rank + step)))
    module = Mixed(torch.bfloat16, torch.float32)  # DDP over Gloo has no bfloat16 in 1.13
    LockstepDDP(module)(float(rank)).backward()
    return wrong + ["%s" % each.grad for each in module.parameters() if not (each.grad == 0.5).all()]


def test_several_dtypes_in_one_module():
    expect_no_difference(on_ranks(2, run_mixed_dtypes))


def run_complex(rank):
    class Wave(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2, 3, dtype=torch.complex64))

        def forward(self, x):
            return (self.weight * x).abs().sum()

    module = Wave()
    wrapped = LockstepDDP(module)
    wrapped(complex(rank + 1, 2)).backward()
    mine = module.weight.grad.clone()
    own = Wave()
    expected = torch.zeros(2, 3, dtype=torch.complex64)
    for each in range(2):
        own.zero_grad()
        own(complex(each + 1, 2)).backward()
        expected += own.weight.grad / 2
    return [] if torch.allclose(mine, expected) else ["%s instead of %s" % (mine, expected)]


def test_complex64():
    expect_no_difference(on_ranks(2, run_complex))


def run_sparse(rank):
    table = nn.Sequential(nn.Embedding(7, 4, sparse=True), nn.Linear(4, 1))
    with torch.no_grad():
        table[0].weight.copy_(torch.arange(28).reshape(7, 4))
        table[1].weight.fill_(1)

    def forward(wrapped, rank, step):
        return wrapped(torch.tensor([rank, step, step, 3 * rank])).sum()

    return beside_ddp(rank, table, forward)


def test_sparse_embeddings():
    expect_no_difference(on_ranks(2, run_sparse))


def run_shared_and_channels_last(rank):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
            self.second.weight = self.first.weight
            self.norm = nn.BatchNorm2d(4)

        def forward(self, x):
            return self.norm(self.second(self.first(x))).pow(3)

    def forward(wrapped, rank, step):
        generator = torch.Generator().manual_seed(10 * step + rank)
        x = torch.randn(2, 4, 5, 5, generator=generator).to(memory_format=torch.channels_last)
        return wrapped(x).sum()

    torch.manual_seed(1)
    return beside_ddp(rank, Tied().to(memory_format=torch.channels_last), forward)


def test_tied_weights_batch_norm_and_channels_last():
    expect_no_difference(on_ranks(2, run_shared_and_channels_last))


def run_outputs(rank):
    """Outputs in containers, of which the loss uses some."""
    import collections
    import dataclasses

    Pair = collections.namedtuple("Pair", "one two")

    @dataclasses.dataclass
    class Record:
        value: object
        note: str = ""

    class Hidden:
        def __init__(self, value):
            self.value = value

    makers = {"tuple": lambda a, b: (a, None, [b]), "dict": lambda a, b: {"a": a, "b": b, "n": 3},
              "named": Pair, "record": lambda a, b: Record(a + b, "note"), "ordered": lambda a, b: collections.OrderedDict(a=a, b=b),
              "hidden": lambda a, b: Hidden(a + b)}
    takers = {"tuple": lambda out: out[0] + out[2][0], "dict": lambda out: out["a"], "named": lambda out: out.one + out.two,
              "record": lambda out: out.value, "ordered": lambda out: out["b"], "hidden": lambda out: out.value}
    wrong = []
    for name, make in makers.items():
        class Two(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(3, 2), nn.Linear(3, 2)

            def forward(self, x):
                return make(self.a(x), self.b(x))

        torch.manual_seed(2)
        dynamic = name in ("dict", "ordered")
        wrong += ["%s: %s" % (name, each) for each in beside_ddp(
            rank, Two(), lambda wrapped, rank, step: takers[name](wrapped(torch.full((2, 3), rank + step + 1.))).sum(),
            find_unused_parameters=dynamic)]
    return wrong


def test_outputs_in_containers():
    expect_no_difference(on_ranks(2, run_outputs))


def run_hooks(rank):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    def forward(wrapped, rank, step):
        return wrapped(torch.full((2, 6), float(rank + step))).sum()

    wrong = []
    for hook in (default_hooks.allreduce_hook, default_hooks.fp16_compress_hook):
        def make(cls):
            def wrap(module):
                wrapped = cls(module, bucket_cap_mb=0.0001)
                wrapped.register_comm_hook(None, hook)
                return wrapped
            return wrap

        torch.manual_seed(3)
        module = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 2))
        expected = train_simply(rank, make(TorchDDP), copy.deepcopy(module), forward)
        wrong += differences(expected, train_simply(rank, make(LockstepDDP), module, forward))
    return wrong


def test_communication_hooks_of_ddp():
    expect_no_difference(on_ranks(2, run_hooks))


def run_join(rank):
    def train_unevenly(make):
        torch.manual_seed(4)
        module = nn.Linear(3, 2)
        wrapped = make(module)
        with wrapped.join():
            for step in range(2 + 2 * rank):
                module.zero_grad()
                wrapped(torch.full((2, 3), float(step + rank))).sum().backward()
                with torch.no_grad():
                    for each in module.parameters():
                        each -= each.grad
        return [{name: each.clone() for name, each in module.state_dict().items()}]

    return differences(train_unevenly(TorchDDP), train_unevenly(LockstepDDP))


def test_uneven_inputs():
    expect_no_difference(on_ranks(2, run_join))


def run_buffers(rank):
    """Two forwards of a step, one dropped: DDP sends buffers in each."""
    def statistics(make):
        torch.manual_seed(5)
        module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
        wrapped = make(module)
        seen = []
        for step in range(3):
            for forward in range(2):
                output = wrapped(torch.randn(5, 3, generator=torch.Generator().manual_seed(9 * step + forward + 50 * rank)))
                seen.append({name: each.clone() for name, each in module.named_buffers()})
            output.pow(2).sum().backward()
        return seen

    return differences(statistics(TorchDDP), statistics(LockstepDDP))


def test_buffers_are_sent_in_each_forward():
    expect_no_difference(on_ranks(2, run_buffers))


def run_checkpoints(rank):
    from torch.utils.checkpoint import checkpoint

    class Recomputed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x):
            return checkpoint(self.second, checkpoint(self.first, x, use_reentrant=True), use_reentrant=True)

    torch.manual_seed(6)
    return beside_ddp(rank, Recomputed(), lambda wrapped, rank, step: wrapped(
        torch.full((2, 3), rank + step + 1., requires_grad=True)).sum())


def test_checkpoints():
    expect_no_difference(on_ranks(2, run_checkpoints))


def run_replaced_gradient(rank):
    """Rank 1 alone uses the parameter, under no_sync, and then puts another gradient there: nobody has used that."""
    class Perhaps(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, x, uses):
            return x * self.weight if uses else x

    module = Perhaps()
    wrapped = LockstepDDP(module, find_unused_parameters=True)
    x = torch.ones(1, requires_grad=True)
    with wrapped.no_sync():
        wrapped(x, rank == 1).backward()
    if rank == 1:
        module.weight.grad = torch.full((1,), 5.)
    wrapped(x, False).backward()
    got = None if module.weight.grad is None else module.weight.grad.item()
    return [] if got == (5 if rank == 1 else None) else ["%s" % got]


def test_a_gradient_that_was_replaced_is_not_used():
    expect_no_difference(on_ranks(2, run_replaced_gradient))


# ---- Replacing DDP ----


class Optional(nn.Module):
    """Three parameters of one shape, of which a forward uses those that it is told."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ParameterList(nn.Parameter(torch.ones(3)) for _ in range(3))

    def forward(self, x, used):
        return sum((self.parts[index] * x for index in used), x)


def run_unused_views(rank):
    """After a pass the ranks do different things to gradients that no rank uses in the next one."""
    wrong = []
    for change in ("undefined on rank 1", "zeroed on rank 1", "other values", "exchanged", "another tensor of the same memory"):
        for used in ((), (2,)):
            module = Optional()
            first, second, _ = module.parts
            wrapped = LockstepDDP(module, find_unused_parameters=True, gradient_as_bucket_view=True)
            wrapped(torch.full((3,), 1.0 + rank), (0, 1, 2)).sum().backward()
            if rank == 1 and change == "undefined on rank 1":
                first.grad = None
            elif rank == 1 and change == "zeroed on rank 1":
                first.grad.zero_()
            elif change == "other values":
                first.grad.add_(rank), second.grad.mul_(rank + 2)
            elif change == "exchanged":
                second.grad.add_(1 + rank)
                first.grad, second.grad = second.grad, first.grad
            elif rank == 1:
                first.grad = first.grad.view(3, 1).view(3)
                first.grad.add_(1)
            expected = [None if each.grad is None else each.grad.clone() for each in (first, second)]
            wrapped(torch.ones(3, requires_grad=True), used).sum().backward()
            found = [index for index, each in enumerate((first, second)) if not same(expected[index], each.grad)]
            wrong += ["%s, then %s used: %s" % (change, used, found)] if found else []
    return wrong


def test_gradients_that_no_rank_uses_stay_as_they_are():
    expect_no_difference(on_ranks(2, run_unused_views))


def run_zeroed_before_a_local_backward(rank):
    """Rank 1 has a gradient, zeroes it, and runs a local backward that brings none: then nobody has used the parameter."""
    module = Optional()
    first = module.parts[0]
    wrapped = LockstepDDP(module, find_unused_parameters=True)
    with wrapped.no_sync():
        wrapped(torch.ones(3, requires_grad=True), (0,) if rank == 1 else ()).sum().backward()
    module.zero_grad(set_to_none=False)
    with wrapped.no_sync():
        (wrapped(torch.ones(3, requires_grad=True), ()) + Stop.apply(first)).sum().backward()
    wrapped(torch.ones(3, requires_grad=True), ()).sum().backward()
    return first.grad is not None


def test_a_gradient_that_was_zeroed_before_a_local_backward_is_unused():
    assert on_ranks(2, run_zeroed_before_a_local_backward) == [False, True]


def run_replacing(rank):
    with lt.replace_ddp():
        assert lt.in_use()
        wrapped = TorchDDP(nn.Linear(2, 2))
        assert isinstance(wrapped, LockstepDDP) and isinstance(wrapped, TorchDDP) and lt.in_use(wrapped)
        assert list(wrapped.state_dict()) == ["module.weight", "module.bias"]

        class Mine(TorchDDP):
            pass

        assert not isinstance(Mine(nn.Linear(2, 2)), LockstepDDP)
    assert not lt.in_use()
    assert not isinstance(TorchDDP(nn.Linear(2, 2)), LockstepDDP)


def test_replace_ddp_and_its_end():
    on_ranks(2, run_replacing)


if __name__ == "__main__":
    sys.exit(run_claims(globals(), sys.argv[1:]))
