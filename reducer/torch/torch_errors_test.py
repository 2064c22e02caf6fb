"""What lockstep.torch.DistributedDataParallel refuses, what it raises, and how training goes on.

    PYTHONPATH=build/release/lockstep-python python3 torch_errors_test.py [NAME...]

A test is a function test_*, and its name the claim. It runs on ranks that are processes.
"""

import os
import resource
import signal
import sys
import tempfile
import threading
import time
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "testing"))
from rank_processes import join_group, on_ranks, run_claims

import torch
import torch.distributed as dist
from torch import nn

import lockstep.torch as lt

LockstepDDP = lt.DistributedDataParallel


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
    expect_text(raised(lambda: LockstepDDP(nn.Linear(2, 2), lazy_bucket_allocation=True)), "NotImplementedError", "leave it out",
                "gradient_as_bucket_view=True")
    delayed = nn.Linear(2, 2)
    expect_text(raised(lambda: LockstepDDP(delayed, delay_all_reduce_named_params=[("weight", delayed.weight)],
                                           param_to_hook_all_reduce=delayed.bias)),
                "NotImplementedError", "delay_all_reduce_named_params", "bucket_cap_mb")
    LockstepDDP(nn.Linear(2, 2), verify_payload=True, order="rank")(torch.ones(1, 2)).sum().backward()
    expect_text(raised(lambda: LockstepDDP(nn.Linear(2, 2).to(torch.complex128))), "ComplexDouble", "does not reduce")


def test_what_cannot_be_wrapped_is_refused():
    on_ranks(2, run_refusals)


def run_without_shared_memory(rank):
    """The texts of the warnings, when rank 0 may make no file as large as the memory."""
    said = []
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit, shares in ((before[0], True), (100000, True), (100000, False)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
            wrapped = LockstepDDP(nn.Linear(2, 2), share_memory=shares)
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        said.append([str(each.message) for each in caught if "share no memory" in str(each.message)])
        wrapped(torch.ones(1, 2)).sum().backward()
    return said


def test_ranks_that_cannot_share_memory_say_so_and_train():
    for rank, (shared, refused, unwanted) in enumerate(on_ranks(2, run_without_shared_memory)):
        assert not shared and not unwanted, (shared, unwanted)
        assert len(refused) == 1, refused
        expect_text(refused[0], "send over TCP", "(ulimit -f) is below" if rank == 0 else "rank 0 shares no memory")


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
    module = nn.Linear(2, 2)
    wrapped = LockstepDDP(module, timeout=60)
    wrapped(torch.ones(1, 2)).sum().backward()
    output = wrapped(torch.ones(1, 2)).sum()
    begin = time.monotonic()
    if rank == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in the background
        threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
        said = "nothing"
        try:
            try:
                output.backward()
            except lt.LockstepError as error:
                said = str(error)
            time.sleep(1)  # Python raises between two of its instructions
        except KeyboardInterrupt:
            said = "KeyboardInterrupt after %s" % said
    else:
        time.sleep(4)
        said = raised(output.backward)
    return said, time.monotonic() - begin


def test_ctrl_c_in_a_collective():
    (own, own_s), (other, other_s) = on_ranks(2, run_interrupted)
    expect_text(own, "KeyboardInterrupt")
    expect_text(other, "LockstepError", "rank 0", "interrupted this rank")
    assert own_s < 20 and other_s < 30, (own_s, other_s)


def run_raising(rank, where):
    """Rank 1 raises in the third step, and ends; what rank 0 raises then."""
    class Raises(nn.Linear):
        def forward(self, x):
            if where == "forward" and rank == 1 and self.is_third:
                raise ValueError("not in this forward")
            return super().forward(x)

    def hook(state, bucket):
        if where == "hook" and rank == 1 and module.is_third:
            raise ValueError("not in this hook")
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda future: future.value()[0])

    module = Raises(2, 2)
    wrapped = LockstepDDP(module, timeout=30)
    if where == "hook":
        wrapped.register_comm_hook(None, hook)
    for step in range(3):
        module.is_third = step == 2
        said = raised(lambda: wrapped(torch.ones(1, 2)).sum().backward())
        if said != "nothing":
            return step, said
    return 3, "nothing"


def test_an_exception_in_a_forward_or_a_hook_of_one_rank_ends_the_step_of_the_other():
    for where in ("forward", "hook"):
        (step, peers), (own_step, own) = on_ranks(2, run_raising, where)
        assert step == own_step == 2, (where, step, own_step)
        expect_text(own, "not in this " + where)
        # The other rank's hook is in an all-reduce of torch.distributed then, which names nobody.
        expect_text(peers, "LockstepError", "communication hook" if where == "hook" else "peer 1")


def run_stopped(rank, patience_s):
    """Rank 1 stops before its backward, until rank 0 has raised."""
    pids = [None, None]
    dist.all_gather_object(pids, os.getpid())
    module = nn.Linear(2, 2)
    wrapped = LockstepDDP(module, timeout=patience_s)
    wrapped(torch.ones(1, 2)).sum().backward()
    loss = wrapped(torch.ones(1, 2)).sum()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    try:
        loss.backward()
        return "nothing", None
    except lt.LockstepError as error:
        return str(error), error.suspect
    finally:
        if rank == 0:
            os.kill(pids[1], signal.SIGCONT)


def test_a_stopped_rank_is_suspected_by_the_other():
    (said, suspect), (own, _) = on_ranks(2, run_stopped, 3)
    assert suspect == 1, said
    expect_text(own, "lockstep: ")


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
    with tempfile.TemporaryDirectory() as folder:
        results = on_ranks(3, run_killed, folder, 1, 4, 8, may_end=(1,))
    assert results[1] is None
    for rank in (0, 2):
        errors, weights = results[rank]
        assert len(errors) == 1, errors
        step, _, suspect, code, text = errors[0]
        assert step == 4 and suspect == 1, (step, suspect, text)
    assert results[0][1] == results[2][1]


if __name__ == "__main__":
    sys.exit(run_claims(globals(), sys.argv[1:]))
