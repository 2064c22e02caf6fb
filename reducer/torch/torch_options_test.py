"""Options and members of lockstep.torch.DistributedDataParallel beside PyTorch's own: uneven inputs in Join([...]), optimizers
in the backward, mixed precision, wrappers in wrappers, and what its reducer and logger tell.

    PYTHONPATH=build/release/lockstep-python python3 torch_options_test.py [NAME...]

A test is a function test_*, and its name the claim. It runs on ranks that are processes.
"""

import copy
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "testing"))
from rank_processes import on_ranks, run_claims

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join, Joinable, JoinHook
from torch.nn.parallel import DistributedDataParallel as TorchDDP

import lockstep.torch as lt
from lockstep.torch._details import handles_of_optimizers

LockstepDDP = lt.DistributedDataParallel


def expect_nothing(results):
    for rank, wrong in enumerate(results):
        assert not wrong, "rank %d: %s" % (rank, wrong)


def differences(one, other):
    return [name for name in one if not torch.equal(one[name], other[name])]


def state_of(module):
    return {name: each.clone() for name, each in module.state_dict().items()}


# ---- Join([...]) ----


class Counter(Joinable):
    """Something else that takes part in a join: it counts the calls of all ranks, in an all-reduce each."""

    def __init__(self):
        super().__init__()
        self.total = torch.zeros(1)

    def count(self, value=1):
        Join.notify_join_context(self)
        mine = torch.full((1,), float(value))
        dist.all_reduce(mine)
        self.total += mine

    def join_hook(self, **kwargs):
        counter = self

        class Hook(JoinHook):
            def main_hook(self):
                counter.count(0)

        return Hook()

    @property
    def join_device(self):
        return torch.device("cpu")

    @property
    def join_process_group(self):
        return dist.group.WORLD


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.spare = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 4)

    def forward(self, x, uses_spare=True):
        x = self.norm(self.first(x))
        return self.spare(x) if uses_spare else x


def train_unevenly(make, rank, steps, options, divide, local_in_two):
    """Steps of which a rank makes `steps[rank]`; each second one is local if that is wished."""
    torch.manual_seed(4)
    module, counter = Normed(), Counter()
    wrapped = make(module, **options)
    dynamic = bool(options.get("find_unused_parameters"))
    with Join([wrapped, counter], divide_by_initial_world_size=divide):
        for step in range(steps[rank]):
            module.zero_grad()
            x = torch.randn(5, 3, generator=torch.Generator().manual_seed(10 * step + rank))
            if local_in_two and step % 2 == 1:
                with wrapped.no_sync():
                    wrapped(x).pow(2).sum().backward()
                    counter.count()
                continue
            wrapped(x, not (dynamic and step == 1)).pow(2).sum().backward()
            counter.count()
            with torch.no_grad():
                for each in module.parameters():
                    if each.grad is not None:
                        each -= 0.01 * each.grad
    wrapped(torch.ones(5, 3)).sum().backward()  # the join is over
    # S2: all take the buffers of the lowest rank that trained last, where DDP takes those of the highest.
    return {**dict(module.named_parameters()), "counted": counter.total}, dict(module.named_buffers())


def differing_from_rank_0(tensors):
    others = {name: each.detach().clone() for name, each in tensors.items()}
    for each in others.values():
        dist.broadcast(each, 0)
    return differences(tensors, others)


def run_joins(rank):
    wrong = []
    for steps in ([2, 5], [4, 0], [3, 3]):
        for options in ({}, {"find_unused_parameters": True}, {"gradient_as_bucket_view": True}, {"forward_sync_buffers": False}):
            if "forward_sync_buffers" in options and not hasattr(TorchDDP, "broadcast_buffers"):
                options = {"broadcast_buffers": False}
            for divide, local in ((True, False), (False, False), (True, True)):
                arguments = (rank, steps, options, divide, local)
                (expected, _), (got, buffers) = train_unevenly(TorchDDP, *arguments), train_unevenly(LockstepDDP, *arguments)
                found = differences(expected, got) + differing_from_rank_0({**got, **buffers})
                wrong += ["%s %s: %s" % (steps, options, found)] if found else []
    return wrong


def test_join_with_others_trains_as_ddp_does():
    expect_nothing(on_ranks(2, run_joins))


def run_joins_with_hooks(rank):
    """Where the reducer was made anew for a hook, and where nothing was sent at the begin."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    wrong = []
    for with_hook, options in ((True, {}), (False, {"init_sync": False}), (True, {"static_graph": True})):
        torch.manual_seed(5)
        module = nn.Linear(3, 2)
        wrapped = LockstepDDP(module, **options)
        if with_hook:
            wrapped.register_comm_hook(None, default_hooks.allreduce_hook)
        with wrapped.join():
            for step in range(2 + 3 * rank):
                module.zero_grad()
                wrapped(torch.full((2, 3), float(step + rank))).sum().backward()
                with torch.no_grad():
                    for each in module.parameters():
                        each -= each.grad
        found = differing_from_rank_0(dict(module.named_parameters()))
        wrong += ["%s: %s" % (options, found)] if found else []
    return wrong


def test_after_a_join_all_have_the_parameters_of_who_trained_last():
    expect_nothing(on_ranks(2, run_joins_with_hooks))


def run_early_join(rank):
    module = nn.Linear(2, 2)
    wrapped, said = LockstepDDP(module), "nothing"
    try:
        with Join([wrapped], throw_on_early_termination=True):
            for _ in range(2 + rank):
                wrapped(torch.ones(1, 2)).sum().backward()
    except RuntimeError as error:
        said = str(error)
    wrapped(torch.ones(1, 2)).sum().backward()
    return said


def test_a_join_that_ends_early_raises_on_all_ranks():
    assert on_ranks(2, run_early_join) == ["Rank 0 exhausted all inputs.",
                                           "Detected at least one rank that exhausted inputs. Throwing across all ranks."]


# ---- Optimizers in the backward ----


def run_optimizers(rank):
    if handles_of_optimizers() is None:
        module = nn.Linear(2, 2)
        module.weight._in_backward_optimizers = []
        try:
            LockstepDDP(module)
        except NotImplementedError:
            return []
        return ["it was not refused"]
    from torch.distributed.optim import apply_optimizer_in_backward as of_torch

    wrong = []
    for views in (False, True):
        for before in (False, True):
            torch.manual_seed(7)
            module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
            plain = copy.deepcopy(module)
            beside = LockstepDDP(plain, gradient_as_bucket_view=views)
            optimizer = torch.optim.Adam(plain.parameters(), lr=0.1, foreach=False)
            make = lambda: of_torch._apply_optimizer_in_backward(
                torch.optim.Adam, module.parameters(), {"lr": 0.1, "foreach": False})
            if before:
                make()
            wrapped = LockstepDDP(module, gradient_as_bucket_view=views)
            if not before:
                make()
            for step in range(4):
                x = torch.full((2, 3), float(rank + step))
                if step == 2:
                    for each in (wrapped, beside):
                        with each.no_sync():
                            each(x).sum().backward()  # nobody steps: the gradient waits for the next pass
                wrapped(x).pow(2).sum().backward()
                wrong += ["a gradient stays in step %d" % step for each in module.parameters() if each.grad is not None]
                beside(x).pow(2).sum().backward()
                optimizer.step()
                plain.zero_grad()
                found = differences(state_of(plain), state_of(module))
                wrong += ["step %d: %s" % (step, found)] if found else []
    return wrong


def test_optimizers_in_the_backward_step_with_the_averages():
    expect_nothing(on_ranks(2, run_optimizers))


# ---- Mixed precision ----


class Recomputed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.first, self.second, self.reentrant = nn.Linear(3, 3), nn.Linear(3, 2), reentrant
        self.register_buffer("offset", torch.ones(3))
        self.seen = []

    def forward(self, x):
        from torch.utils.checkpoint import checkpoint

        self.seen.append((self.first.weight.dtype, x.dtype, self.offset.dtype))
        hidden = self.first(x) + self.offset
        if self.reentrant is None:
            return self.second(hidden)
        return checkpoint(self.second, hidden, use_reentrant=self.reentrant)


def expected_of_mixed(module, world, dtype, make_input):
    """The mean of the ranks' gradients, each divided by their number and rounded, and added, in the dtype."""
    low = copy.deepcopy(module).to(dtype)
    total = {}
    for rank in range(world):
        low.zero_grad()
        low(make_input(rank).to(dtype)).float().pow(2).sum().backward()
        for name, each in low.named_parameters():
            part = (each.grad.float() / world).to(dtype)
            total[name] = part if name not in total else total[name] + part
    return {name: each.float() for name, each in total.items()}


def run_mixed(rank):
    from torch.nn.parallel import distributed as torchs

    if not hasattr(torchs, "_MixedPrecision"):
        class Config:
            param_dtype = reduce_dtype = buffer_dtype = torch.float16

        try:
            LockstepDDP(nn.Linear(2, 2), mixed_precision=Config)
        except NotImplementedError:
            return []
        return ["it was not refused"]
    wrong = []
    for dtype in (torch.float16, torch.bfloat16):
        for reentrant in (None, False, True):
            torch.manual_seed(8)
            module = Recomputed(reentrant)
            plain = copy.deepcopy(module)
            plain.reentrant = None
            wrapped = LockstepDDP(module, mixed_precision=torchs._MixedPrecision(dtype, dtype, dtype))
            make_input = lambda of: torch.full((4, 3), 0.25 + of)
            for step in range(2):
                module.zero_grad()
                out = wrapped(make_input(rank))
                wrong += [] if out.dtype == dtype else ["the output has %s" % out.dtype]
                out.float().pow(2).sum().backward()
                got = {name: each.grad for name, each in module.named_parameters()}
                found = differences(expected_of_mixed(plain, 2, dtype, make_input), got)
                wrong += ["%s %s: %s" % (dtype, reentrant, found)] if found else []
            wrong += ["the forward saw %s" % (each,) for each in module.seen if set(each) != {dtype}]
            wrong += ["%s has %s" % (name, each.dtype) for name, each in module.named_parameters() if each.dtype != torch.float32]
            with torch.no_grad():
                wrong += [] if wrapped(make_input(rank)).dtype == dtype else ["no_grad"]
    return wrong


def test_mixed_precision():
    expect_nothing(on_ranks(2, run_mixed))


# ---- Wrappers in wrappers ----


def run_nested(rank):
    wrong = []
    for views in (False, True):
        for options in ({}, {"static_graph": True}, {"find_unused_parameters": True}):
            torch.manual_seed(9)
            module = nn.Linear(3, 2)
            inner = LockstepDDP(module, gradient_as_bucket_view=views)
            outer = LockstepDDP(inner, gradient_as_bucket_view=views, **options)
            for step in range(4):
                expected = sum(torch.full((2, 3), float(each + step)) for each in range(2)) / 2
                for wrapped in (inner, outer):
                    module.zero_grad()
                    wrapped(torch.full((1, 3), float(rank + step))).sum().backward()
                    if not torch.equal(module.weight.grad, expected):
                        wrong.append("views %s, %s, step %d: %s" % (views, options, step, module.weight.grad))
    return wrong


def test_a_wrapper_of_a_wrapper_averages():
    expect_nothing(on_ranks(2, run_nested))


# ---- What reducer and logger tell ----


class Perhaps(nn.Module):
    def __init__(self):
        super().__init__()
        self.always, self.perhaps = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)

    def forward(self, x, uses):
        return self.perhaps(self.always(x)) if uses else self.always(x)


def run_used_maps(rank):
    wrapped = LockstepDDP(Perhaps(), find_unused_parameters=True)
    seen = []
    for step in range(4):
        wrapped(torch.ones(1, 2), step > 1 and rank == 1).sum().backward()
        seen.append((wrapped.reducer._get_local_used_map().tolist(), wrapped.reducer._ddp_graph_static()))
    return seen


def test_the_reducer_tells_how_many_ranks_used_a_parameter():
    for seen in on_ranks(2, run_used_maps):
        assert seen == [([2, 0], True), ([2, 0], True), ([2, 1], False), ([2, 1], False)], seen


def run_logger(rank):
    wrapped = LockstepDDP(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)))
    for _ in range(4):
        wrapped(torch.ones(2, 3)).sum().backward()
    data = wrapped._get_ddp_logging_data()
    assert data["iteration"] == 3 and data["has_rebuilt_buckets"] == 1, data
    names = ("forward_compute_time", "backward_compute_time", "backward_comm_time")
    assert all(data[name] > 0 and data["avg_" + name] > 0 for name in names), data
    assert (data["forward_compute_time_start"] < data["backward_compute_time_start"] < data["backward_compute_time_end"]
            <= data["backward_comm_time_end"]), data
    assert data["prev_iteration_grad_ready_order_indices"] == ", ".join(data["rebuilt_per_bucket_param_indices"].split(" "))
    assert isinstance(wrapped.logger, dist.Logger)
    wrapped.logger.set_error_and_log("what went wrong")
    assert "what went wrong" in wrapped._get_ddp_logging_data()["error"]


def test_the_logger_tells_times_orders_and_errors():
    on_ranks(2, run_logger)


def run_profiled(rank):
    counts = {}
    for dynamic in (False, True):
        wrapped = LockstepDDP(nn.Linear(3, 2, bias=False), find_unused_parameters=dynamic)
        with torch.autograd.profiler.profile() as profiled:
            for _ in range(3):
                wrapped(torch.ones(2, 3)).sum().backward()
        for event in profiled.function_events:
            if event.name.startswith(("gloo:", "search_unused")):
                counts[dynamic, event.name] = counts.get((dynamic, event.name), 0) + 1
                assert event.is_async == event.name.startswith("gloo:"), event.name
    return counts


def test_the_profiler_sees_collectives():
    for counts in on_ranks(2, run_profiled):
        assert counts == {(False, "gloo:all_reduce"): 3, (False, "gloo:broadcast"): 1, (True, "gloo:all_reduce"): 6,
                          (True, "search_unused_parameters"): 3}, counts


if __name__ == "__main__":
    sys.exit(run_claims(globals(), sys.argv[1:]))
