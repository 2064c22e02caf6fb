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


# ---- Replacing DDP ----


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


# ---- Bad input ----


def raised(call):
    """The error that the call raises, and what it says."""
    try:
        call()
    except Exception as error:
        return "%s: %s" % (type(error).__name__, error)
    return "nothing"


def expect_text(text, *parts):
    for part in parts:
        assert part in text, "%r is not in %r" % (part, text)


def run_refusals(rank):
    frozen = nn.Linear(2, 2).requires_grad_(False)
    expect_text(raised(lambda: LockstepDDP(frozen)), "doesn't have any parameter that requires a gradient")
    module = nn.Linear(2, 2)
    first = LockstepDDP(module)
    first(torch.ones(1, 2)).sum().backward()
    second = LockstepDDP(module)
    expect_text(raised(lambda: first(torch.ones(1, 2))), "LockstepError", "was wrapped again", "wrap a module once")
    second(torch.ones(1, 2)).sum().backward()
    expect_text(raised(lambda: LockstepDDP(nn.Linear(2, 2), device_ids=[0])), "ValueError", "for modules on GPUs")
    expect_text(raised(lambda: LockstepDDP(nn.Linear(2, 2), order="fast")), "has to be")
    expect_text(raised(lambda: LockstepDDP(nn.Linear(2, 2), verify_payload=True)), "order=\"rank\"")
    expect_text(raised(lambda: LockstepDDP(nn.Linear(2, 2), lazy_bucket_allocation=True)), "NotImplementedError", "leave it out")
    LockstepDDP(nn.Linear(2, 2), verify_payload=True, order="rank")(torch.ones(1, 2)).sum().backward()
    expect_text(raised(lambda: LockstepDDP(nn.Linear(2, 2).to(torch.complex128))), "ComplexDouble", "does not reduce")


def test_what_cannot_be_wrapped_is_refused():
    on_ranks(2, run_refusals)


def run_one_refuses(rank):
    module = nn.Linear(2, 2).requires_grad_(rank == 0)
    return raised(lambda: LockstepDDP(module))


def test_a_refusal_of_one_rank_is_told_on_all():
    texts = on_ranks(2, run_one_refuses)
    expect_text(texts[0], "a rank refuses. rank 1: DistributedDataParallel is not needed")
    expect_text(texts[1], "doesn't have any parameter that requires a gradient")


def run_different_modules(rank):
    return raised(lambda: LockstepDDP(nn.Linear(2, 2 + rank)))


def test_ranks_with_different_modules_say_what_differs():
    for text in on_ranks(2, run_different_modules):
        expect_text(text, "LockstepError", "weight", "[3 2]")


def run_changed_modules(rank):
    module = nn.Linear(2, 2)
    wrapped = LockstepDDP(module)
    module.weight = nn.Parameter(torch.ones(2, 2))
    expect_text(raised(lambda: wrapped(torch.ones(1, 2))), "was replaced after it was wrapped")
    module = nn.Linear(2, 2)
    wrapped = LockstepDDP(module)
    module.double()
    expect_text(raised(lambda: wrapped(torch.ones(1, 2).double()).sum().backward()), "LockstepError", "another dtype",
                "convert the module first")
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    wrapped = LockstepDDP(module)
    module[1].running_mean = torch.zeros(2, dtype=torch.float64)
    expect_text(raised(lambda: wrapped(torch.ones(1, 2))), "LockstepError", "running_mean")


def test_a_module_that_changes_after_wrapping_is_refused():
    on_ranks(2, run_changed_modules)


def run_contract(rank):
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    wrapped = LockstepDDP(module)
    expect_text(raised(lambda: wrapped.module[0](torch.ones(1, 2)).sum().backward()), "nothing")
    loss = wrapped(torch.ones(1, 2)).sum()
    loss.backward(retain_graph=True)
    expect_text(raised(loss.backward), "second backward")
    wrapped(torch.ones(1, 2)).sum().backward()
    wrapped(torch.ones(1, 2)).sum().backward()
    expect_text(raised(lambda: wrapped(torch.ones(1, 2)).sum().backward(inputs=[module[0].weight])), "incomplete", "0.bias")
    module.zero_grad()
    wrapped(torch.ones(1, 2)).sum().backward()
    expect_text(raised(lambda: wrapped(torch.ones(1, 2)).sum().backward(create_graph=True)), "requires a gradient itself")
    module.zero_grad(set_to_none=True)
    wrapped(torch.ones(1, 2)).sum().backward()
    torch.autograd.grad(wrapped(torch.ones(1, 2)).sum(), [module[0].weight])
    wrapped(torch.ones(1, 2)).sum().backward()
    try:
        wrapped(torch.ones(1, 2)).sum().backward(inputs=[module[0].weight])
    except lt.LockstepError as error:
        assert error.code == "incomplete pass" and error.rank == rank and "1.weight" in error.parameters, vars(error)
    wrapped(torch.ones(1, 2)).sum().backward()


def test_errors_of_the_contract_and_training_on_after_them():
    on_ranks(2, run_contract)


def run_forward_raises(rank):
    module = nn.Linear(2, 2)
    wrapped = LockstepDDP(module, timeout=20)
    wrapped(torch.ones(1, 2)).sum().backward()

    class Refuses(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            if rank == 1:
                raise ValueError("not today")
            return gradient

    output = wrapped(Refuses.apply(torch.ones(1, 2, requires_grad=True)))
    return raised(lambda: Refuses.apply(output).sum().backward())


def test_an_exception_in_the_backward_of_one_rank():
    texts = on_ranks(2, run_forward_raises)
    expect_text(texts[1], "ValueError: not today")
    expect_text(texts[0], "LockstepError", "rank 1")


def run_interrupted(rank):
    import threading

    module = nn.Linear(2, 2)
    wrapped = LockstepDDP(module, timeout=60)
    wrapped(torch.ones(1, 2)).sum().backward()
    output = wrapped(torch.ones(1, 2)).sum()
    begin = time.monotonic()
    if rank == 0:
        threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
        said = "nothing"
        try:
            try:
                output.backward()
            except lt.LockstepError as error:
                said = str(error)
            time.sleep(1)  # Python raises between two of its instructions
        except KeyboardInterrupt as error:
            said = "KeyboardInterrupt after %s, %s" % (said, error.__context__)
    else:
        time.sleep(4)
        said = raised(output.backward)
    return said, time.monotonic() - begin


def test_ctrl_c_in_a_collective():
    (own, own_s), (other, other_s) = on_ranks(2, run_interrupted)
    expect_text(own, "KeyboardInterrupt", "interrupted this rank")
    expect_text(other, "LockstepError", "rank 0", "interrupted this rank")
    assert own_s < 20 and other_s < 30, (own_s, other_s)


def run_functional_call(rank):
    if not hasattr(torch, "func"):
        return
    module = nn.Linear(2, 2)
    wrapped = LockstepDDP(module)
    lent = {"module.weight": torch.ones(2, 2, requires_grad=True), "module.bias": torch.ones(2, requires_grad=True)}
    torch.func.functional_call(wrapped, lent, torch.ones(1, 2)).sum().backward()
    assert module.weight.grad is None and lent["module.weight"].grad is not None
    wrapped(torch.ones(1, 2)).sum().backward()
    assert module.weight.grad is not None


def test_a_functional_call_is_about_its_own_tensors():
    on_ranks(2, run_functional_call)


# ---- A killed rank, and the loop that goes on ----


def run_killed(rank, folder, victim, deadly_step, steps):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    model = LockstepDDP(module, order="rank")
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    errors, step = [], 0
    while step < steps:
        try:
            loss = model(torch.full((3, 4), float(rank + step))).pow(2).sum()
            if rank == victim and step == deadly_step:
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.zero_grad()
            loss.backward()
        except lt.LockstepError as error:
            errors.append((step, error.rank, error.suspect, error.code, str(error)))
            dist.destroy_process_group()
            left = [each for each in range(3) if each != victim]
            join_group(os.path.join(folder, "second"), left.index(rank), len(left))
            model.reset()
            continue
        optimizer.step()
        step += 1
    return errors, [each.tolist() for each in module.parameters()]


def test_a_killed_rank_is_named_in_its_step_and_training_goes_on():
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        results = on_ranks(3, run_killed, folder, 1, 4, 8, may_end=(1,))
    assert results[1] is None
    for rank in (0, 2):
        errors, weights = results[rank]
        assert len(errors) == 1, errors
        step, _, suspect, code, text = errors[0]
        assert step == 4 and suspect == 1, (step, suspect, text)
    assert results[0][1] == results[2][1]


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
