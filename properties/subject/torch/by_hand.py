#!/usr/bin/env python3
"""by_hand.py [NAME...]: the findings of FINDINGS.md that PyTorch's C++ interface cannot show.

Each finding is a script of plain PyTorch over Gloo, with ranks as processes of this machine; it
needs nothing of this project. It prints what every rank saw, and ends in a line `NAME: shows` or
`NAME: does not show`. Without names all findings run. `--list` names them.

Exit code: 0 if all show, 1 if one does not, 2 if there is no PyTorch to run them with.
"""
import datetime
import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import sys
import tempfile
import time

try:
    import torch
    import torch.distributed as dist
    from torch.distributed.algorithms.join import Join
    from torch.nn.parallel import DistributedDataParallel
except ImportError as error:
    print("cannot run: this needs PyTorch with torch.distributed (%s)" % error)
    sys.exit(2)

TIMEOUT_SECONDS = 4  # of a collective that a peer never joins
RUN_SECONDS = 60  # a rank that has not ended by then hangs


# ---- ranks as processes ----


class Rank:
    """What the body of a finding is given: its number, and a way to report what it sees."""

    def __init__(self, number, pipe):
        self.number = number
        self.pipe = pipe

    def report(self, name, value):
        self.pipe.send((name, value))

    def attempt(self, name, call):
        """Reports "ok", or the first line of the error; returns whether it went well."""
        begin = time.monotonic()
        try:
            call()
            result = "ok"
        except Exception as error:  # whatever PyTorch raises is what is looked at
            result = str(error).strip().split("\n")[0][:300]
        self.report(name, result)
        self.report(name + " seconds", round(time.monotonic() - begin, 1))
        return result == "ok"


def serve(body, number, world, store, pipe):
    torch.set_num_threads(1)
    limit = datetime.timedelta(seconds=TIMEOUT_SECONDS)
    dist.init_process_group("gloo", init_method="file://" + store, rank=number, world_size=world,
                            timeout=limit)
    Rank(number, pipe).attempt("end", lambda: body(Rank(number, pipe)))
    pipe.close()
    os._exit(0)  # connections close now, as those of any process that ends


def how_ended(process):
    if process.exitcode is None:
        process.kill()
        process.join()
        return "hangs"
    if process.exitcode < 0:
        return "killed by " + signal.Signals(-process.exitcode).name
    return "exited with %d" % process.exitcode


def is_end_of_connection(text):
    """What Gloo says of a peer that is gone: which of the two is a matter of time."""
    return "closed by peer" in text or "reset by peer" in text


def run(body, world=2, tend=None, seconds=RUN_SECONDS):
    """Runs body(rank) in `world` processes, for `seconds` at most. Returns for each rank what it
    reported, by name, and "end". Meanwhile `tend(processes, seen)` is called again and again."""
    context = multiprocessing.get_context("fork")  # this process runs no operation of torch
    seen = [{} for _ in range(world)]
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
        open_pipes = dict(enumerate(pipes))
        while open_pipes and time.monotonic() < limit:
            for number in multiprocessing.connection.wait(list(open_pipes.values()), 0.05):
                rank = pipes.index(number)
                try:
                    name, value = number.recv()
                    seen[rank][name] = value
                except EOFError:
                    del open_pipes[rank]
            if tend:
                tend(processes, seen)
        for number, process in enumerate(processes):
            process.join(max(0.0, limit - time.monotonic()) if number not in open_pipes else 0)
            if "end" not in seen[number] or process.exitcode != 0:
                seen[number]["end"] = how_ended(process)
    for number, reported in enumerate(seen):
        for name, value in reported.items():
            if not name.endswith(" seconds"):
                print("  rank %d: %s: %s" % (number, name, value))
    return seen


# ---- models ----


class Table(torch.nn.Module):
    """Parameters by name, of a shape each; the loss is the sum of those that `used` names, each
    times `factor`."""

    def __init__(self, **parameters):
        super().__init__()
        for name, value in parameters.items():
            self.register_parameter(name, torch.nn.Parameter(value))

    def forward(self, used, factor):
        return sum((getattr(self, name) * factor).sum() for name in used)


def values_of(parameter):
    return None if parameter.grad is None else parameter.grad.flatten().tolist()


def starts_all_reduce(bucket):
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda future: future.value()[0] / dist.get_world_size())


# ---- the findings: each returns whether it shows ----


def train_with_a_hook_that_fails(where):
    """What the hook does with the sums raises in the second of three passes, on ranks `where`."""

    def body(rank):
        model = DistributedDataParallel(Table(p=torch.zeros(1)))
        passes = []

        def hook(state, bucket):
            passes.append(None)
            fails = len(passes) == 2 and rank.number in where

            def take(sums):
                if fails:
                    raise RuntimeError("the hook raises")
                return sums.value()[0] / 2

            return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(take)

        model.register_comm_hook(None, hook)
        for index in range(3):
            model.zero_grad(set_to_none=True)
            loss = model(["p"], 1.0 + 2 * rank.number)
            rank.attempt("pass %d" % index, loss.backward)
            rank.report("gradient %d" % index, values_of(model.module.p))

    return run(body)


def one_hook_fails():
    """A communication hook starts its all-reduce; what it does with the sums raises in the second
    pass, on rank 0 alone, then on both."""
    first, second = train_with_a_hook_that_fails([0])
    if second["pass 1"] != "ok" or second["gradient 1"] != [2.0]:
        return False
    both = train_with_a_hook_that_fails([0, 1])
    return (all("the hook raises" in each["pass 1"] and each["gradient 1"] != [2.0]
                for each in [first, *both])
            and all(each["pass 2"] == "ok" and each["gradient 2"] == [2.0]
                    for each in [first, second, *both]))


def failed_hook_stays_failed():
    """A communication hook raises on rank 0, before it starts anything; then two more passes."""

    def body(rank):
        model = DistributedDataParallel(Table(p=torch.zeros(1)))
        passes = []

        def hook(state, bucket):
            passes.append(None)
            if len(passes) == 1 and rank.number == 0:
                raise RuntimeError("the hook raises")
            return starts_all_reduce(bucket)

        model.register_comm_hook(None, hook)
        for index in range(3):
            went_well = rank.attempt("pass %d" % index,
                                     lambda: model(["p"], 1.0).backward())
            if not went_well and rank.number == 1:
                break

    first, second = run(body)
    return (first["pass 0"].endswith("the hook raises")
            and all("INTERNAL ASSERT FAILED" in first["pass %d" % index] for index in (1, 2))
            and all("please report a bug to PyTorch" in first["pass %d" % index]
                    for index in (1, 2))
            and second["pass 0"] != "ok")


def join_sends_the_last_map():
    """Under join, find_unused_parameters: rank 0 used b in its one input, and has joined; rank 1
    uses a alone in its second. zero_grad(set_to_none=True) before each."""

    def body(rank):
        model = DistributedDataParallel(Table(a=torch.zeros(1), b=torch.zeros(1)),
                                        find_unused_parameters=True)
        inputs = [["a", "b"]] if rank.number == 0 else [["a"], ["a"]]
        with Join([model]):
            for index, used in enumerate(inputs):
                model.zero_grad(set_to_none=True)
                model(used, 1.0).backward()
                rank.report("b after input %d" % index, values_of(model.module.b))

    _, second = run(body)
    return second["b after input 1"] == [0.0]


def pair(a, b):
    return Table(a=torch.full((2,), a), b=torch.full((2,), b))


def average_by_place(names_of):
    def body(rank):
        module = Table(**{name: torch.zeros(1) for name in names_of[rank.number]})
        model = DistributedDataParallel(module)
        loss = model(["a"], 1.0) + model.module(["b"], 10.0)
        rank.attempt("backward", loss.backward)
        for name in ("a", "b"):
            rank.report(name, values_of(getattr(module, name)))

    first, second = run(body)
    return (first["backward"] == second["backward"] == "ok" and first["a"] == [5.5]
            and second["b"] == [5.5])


def other_order_is_averaged():
    """Parameters a and b of one shape, made in another order on each rank."""
    return average_by_place([["a", "b"], ["b", "a"]])


def same_order():
    """The control of the one before: nothing is wrong here, so that it must not show."""
    return average_by_place([["a", "b"], ["a", "b"]])


def other_frozen_is_averaged():
    """Parameters a and b of one shape; rank 0 has b frozen, rank 1 a."""

    def body(rank):
        module = Table(a=torch.zeros(1), b=torch.zeros(1))
        getattr(module, "ba"[rank.number]).requires_grad_(False)
        model = DistributedDataParallel(module)
        rank.attempt("backward", model("ab"[rank.number], 1.0 + 9 * rank.number).backward)
        for name in ("a", "b"):
            rank.report(name, values_of(getattr(model.module, name)))

    first, second = run(body)
    return (first["backward"] == second["backward"] == "ok" and first["a"] == [5.5]
            and second["b"] == [5.5])


def construct_and_train(rank, make, passes=2, factor=1.0):
    """Reports how it went; stops at the first error."""
    models = []
    if not rank.attempt("construction", lambda: models.append(make())):
        return
    for index in range(passes):
        if not rank.attempt("pass %d" % index, lambda: models[0](["a", "b"], factor).backward()):
            return


def other_detection_is_not_reported():
    """One rank with find_unused_parameters, the other without."""

    def body(rank):
        construct_and_train(rank, lambda: DistributedDataParallel(
            pair(0.0, 0.0), find_unused_parameters=rank.number == 0), passes=1)

    seen = run(body)
    passes = sorted(each.get("pass 0", "") == "ok" for each in seen)
    return all(each["construction"] == "ok" for each in seen) and passes == [False, True]


def aborted(seen):
    return any("SIGABRT" in each["end"] for each in seen)


def other_dtype_aborts():
    """float32 on rank 0, float64 on rank 1."""

    def body(rank):
        dtype = torch.float32 if rank.number == 0 else torch.float64
        construct_and_train(rank, lambda: DistributedDataParallel(
            pair(0.0, 0.0).to(dtype)))

    return aborted(run(body))


def other_bucket_cap_aborts():
    """Unused detection; buckets of 25 MiB on rank 0, of 4 bytes on rank 1."""

    def body(rank):
        cap = 25 if rank.number == 0 else 4 / 1024 / 1024
        construct_and_train(rank, lambda: DistributedDataParallel(
            Table(big=torch.zeros(300000), a=torch.zeros(2), b=torch.zeros(2)),
            find_unused_parameters=True, bucket_cap_mb=cap))

    return aborted(run(body))


def other_sparsity_times_out():
    """A table whose gradient is sparse on rank 1 alone."""

    def body(rank):
        module = torch.nn.Embedding(4, 2, sparse=rank.number == 1)
        models = []
        if rank.attempt("construction", lambda: models.append(DistributedDataParallel(module))):
            rank.attempt("pass 0", lambda: models[0](torch.tensor([1])).sum().backward())
            time.sleep(TIMEOUT_SECONDS + 1)  # so that the other has its own error

    seen = run(body)
    return (all(each["construction"] == "ok" for each in seen)
            and any("Timed out" in each.get("pass 0", "") for each in seen))


def other_sizes_are_reported_on_one_rank():
    """Two elements on rank 0, three on rank 1."""

    def body(rank):
        construct_and_train(rank, lambda: DistributedDataParallel(
            Table(a=torch.zeros(2 + rank.number), b=torch.zeros(1))))

    first, second = run(body)
    return ("appears not to match" in second["construction"]
            and "not to match" not in first["construction"]
            and is_end_of_connection(first["construction"]))


def hooks_see_index_zero():
    """Static graph, parameters of two dtypes, one of which is column-major; a hook notes what its
    buckets say of themselves in the first passes."""

    def body(rank):
        column_major = torch.zeros(2, 3).t()
        model = DistributedDataParallel(Table(a=torch.zeros(2), b=column_major.double()),
                                        static_graph=True)
        noted = []

        def hook(state, bucket):
            strides = [tuple(each.stride()) for each in bucket.gradients()]
            noted.append((bucket.index(), bucket.is_last(), strides))
            return starts_all_reduce(bucket)

        model.register_comm_hook(None, hook)
        for index in range(3):
            model(["a", "b"], 1.0).backward()
            rank.report("buckets of pass %d (index, is last, strides)" % index, list(noted))
            noted.clear()
        rank.report("strides of b, and of its gradient",
                  [tuple(model.module.b.stride()), tuple(model.module.b.grad.stride())])

    seen = run(body)[0]
    first = seen["buckets of pass 0 (index, is last, strides)"]
    second = seen["buckets of pass 1 (index, is last, strides)"]
    strides = [each for _, _, every in first + second for each in every]
    return (len(first) == 2 and [each[:2] for each in first] == [(0, False), (0, False)]
            and (2, 1) in strides and (1, 3) not in strides
            and seen["strides of b, and of its gradient"] == [(1, 3), (1, 3)])


# ---- a rank that is gone, stops or is slow: three ranks, rank 2 fails before a backward ----


def lost_rank(how, tend=None):
    def body(rank):
        names = ["p%d" % index for index in range(4)]
        model = DistributedDataParallel(
            Table(**{name: torch.zeros(1000) for name in names}), bucket_cap_mb=0.004)
        for index in range(3):
            model(names, 1.0).backward()
        model.zero_grad(set_to_none=True)
        loss = model(names, 1.0 + rank.number)
        if rank.number == 2:
            rank.report("it", how)
            if how == "exits":
                os._exit(3)
            if how == "is killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "is stopped":
                os.kill(os.getpid(), signal.SIGSTOP)
            if how == "is slow":
                time.sleep(2)
        rank.attempt("backward", loss.backward)
        rank.report("gradient", values_of(model.module.p0)[:1])
        rank.attempt("the next one", lambda: model(names, 1.0).backward())

    return run(body, world=3, tend=tend)


def gone_rank_is_an_error():
    """Rank 2 exits, or is killed."""
    for how in ("exits", "is killed"):
        survivors = lost_rank(how)[:2]
        for each in survivors:
            if not is_end_of_connection(each["backward"]):
                return False
            if each["backward seconds"] >= TIMEOUT_SECONDS or each["the next one"] == "ok":
                return False
    return True


def stopped_rank_is_an_error():
    """Rank 2 is stopped (SIGSTOP) until the others have ended."""

    def wake(processes, seen):
        if all("end" in each for each in seen[:2]) and processes[2].is_alive():
            processes[2].kill()

    survivors = lost_rank("is stopped", wake)[:2]
    return all("Timed out waiting" in each["backward"] or is_end_of_connection(each["backward"])
               or "pair closure" in each["backward"] for each in survivors)


def slow_rank_is_waited_for():
    """Rank 2 is slow by 2 s."""
    return all(each["backward"] == "ok" and each["gradient"] == [2.0]
               for each in lost_rank("is slow"))


def half_sums_are_lost():
    """The hook that compresses to float16, and gradients whose sum Gloo leaves out. The bits of
    2618.0 are the number 26909, whose nearest float16 is 26912, the sum: 2618.0 stays."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    def body(rank):
        model = DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))
        model.register_comm_hook(None, fp16_compress_hook)
        for name, inputs in (("lost", (5236.0, 48576.0)), ("kept", (48576.0, 5236.0))):
            model.zero_grad()
            model(torch.full((1, 1), inputs[rank.number])).sum().backward()
            rank.report(name, model.module.weight.grad.item())

    seen = run(body)
    return all(each["lost"] == 2618.0 and each["kept"] == 26912.0 for each in seen)


def swap_on_one_rank(views):
    """Whether the ranks then have something else than the averages, without an error."""

    def body(rank):
        module = pair(0.0, 0.0)
        model = DistributedDataParallel(module, gradient_as_bucket_view=views)
        for factor in (0.0, 1.0, 2.0):  # nothing, as buckets are rebuilt then; 1 and 10; 2 and 20
            loss = model(["a"], factor) + module(["b"], 10 * factor)
            if not rank.attempt("backward", loss.backward):
                return
            if rank.number == 0 and factor == 1.0:
                module.a.grad, module.b.grad = module.b.grad, module.a.grad
        for name in ("a", "b"):
            rank.report(name, values_of(getattr(module, name)))

    seen = run(body)
    return (all(each["backward"] == "ok" for each in seen)
            and any((each["a"], each["b"]) != ([7.5] * 2, [25.5] * 2) for each in seen))


def swapped_views_are_taken_for_each_other():
    """Gradients as views; on rank 0 the user gives a the gradient of b, and b that of a."""
    return swap_on_one_rank(True)


def swapped_gradients():
    """The control of the one before: the same without views, where nothing is wrong."""
    return swap_on_one_rank(False)


# ---- what a forward has armed ----


def local_backward_is_averaged():
    """A synced forward, then a forward under no_sync. The backward of the local output comes first,
    then that of the synced one."""

    def body(rank):
        model = DistributedDataParallel(Table(p=torch.zeros(1)))
        synced = model(["p"], 1.0 + rank.number)
        with model.no_sync():
            local = model(["p"], 10.0 + 10 * rank.number)
        local.backward()
        rank.report("after the local backward", values_of(model.module.p))
        rank.attempt("synced backward", synced.backward)
        rank.report("after the synced backward", values_of(model.module.p))

    first, second = run(body)
    return (all(each["after the local backward"] == [15.0] for each in (first, second))
            and first["after the synced backward"] == [16.0]
            and second["after the synced backward"] == [17.0])


class Outputs(Table):
    """The outputs are the losses of the parameters that `used` names, one each."""

    def forward(self, used, factor):
        return [(getattr(self, name) * factor).sum() for name in used]


def spare_output_ends_static_graph():
    """Static graph; the model has two outputs, and the loss uses the first one, in every pass."""

    def body(rank):
        model = DistributedDataParallel(Outputs(a=torch.zeros(1), b=torch.zeros(1)),
                                        static_graph=True)
        for index in range(3):
            model.zero_grad(set_to_none=True)
            rank.attempt("pass %d" % index,
                         lambda: model(["a", "b"], 1.0 + rank.number)[0].backward())
            rank.report("a after pass %d" % index, values_of(model.module.a))

    first, second = run(body)
    return (all(each["pass 0"] == each["pass 1"] == "ok" and each["a after pass 0"] == [1.5]
                and each["pass 2"].startswith("Expected to have finished reduction")
                for each in (first, second))
            and first["a after pass 1"] == [1.0] and second["a after pass 1"] == [2.0])


class Box:
    def __init__(self, content):
        self.content = content


class Boxed(Table):
    def forward(self, used, factor):
        return Box(super().forward(used, factor))


def hidden_output_is_ready_twice():
    """find_unused_parameters; the model returns its output in an object of a class of its own."""

    def body(rank):
        model = DistributedDataParallel(Boxed(a=torch.zeros(1), b=torch.zeros(1)),
                                        find_unused_parameters=True)
        rank.attempt("backward", lambda: model(["a"], 1.0).content.backward())

    return all("mark a variable ready only once" in each["backward"] for each in run(body))


class RaisesInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise ValueError("the node raises")


def failed_backward_blocks_the_next():
    """A node raises in the first backward, on both ranks: the gradient of b is there, that of a
    is not, and no collective has been launched. Then two more passes."""

    def body(rank):
        model = DistributedDataParallel(Table(a=torch.zeros(1), b=torch.zeros(1)))
        failing = RaisesInBackward.apply(model.module.a * 1.0).sum()
        loss = failing + model(["b"], 1.0)
        rank.attempt("backward", loss.backward)
        for index in range(2):
            rank.attempt("pass %d" % index, lambda: model(["a", "b"], 1.0).backward())

    return all("the node raises" in each["backward"]
               and all("parameters that were not used" in each["pass %d" % index]
                       for index in range(2)) for each in run(body))


def create_graph_is_averaged():
    """backward(create_graph=True): the gradients require grad themselves."""

    def body(rank):
        model = DistributedDataParallel(Table(p=torch.ones(1)))
        loss = model(["p"], 1.0) ** 2 * (1 + rank.number)
        rank.attempt("backward", lambda: loss.backward(create_graph=True))
        gradient = model.module.p.grad
        rank.report("gradient, and whether it requires grad",
                    (gradient.tolist(), gradient.requires_grad))

    return all(each["backward"] == "ok"
               and each["gradient, and whether it requires grad"] == ([3.0], True)
               for each in run(body))


def two_checkpoints_of_the_model_work():
    """A checkpoint around the whole model, twice in one backward: each is reduced by itself, and
    the gradient is right."""
    from torch.utils.checkpoint import checkpoint

    def body(rank):
        model = DistributedDataParallel(Table(p=torch.zeros(1)))
        inputs = torch.ones(1, requires_grad=True)

        def forward(factor):
            return model(["p"], factor * (1.0 + rank.number))

        loss = checkpoint(forward, inputs) + checkpoint(forward, inputs * 3)
        rank.attempt("backward", loss.sum().backward)
        rank.report("gradient", values_of(model.module.p))

    return all(each["backward"] == "ok" and each["gradient"] == [6.0] for each in run(body))


def subnormals_follow_the_thread():
    """The application flushes subnormal numbers to zero. The mean of 1e-38 on both ranks."""

    def body(rank):
        torch.set_flush_denormal(True)
        model = DistributedDataParallel(Table(p=torch.zeros(1)))
        model(["p"], 1e-38).backward()
        torch.set_flush_denormal(False)
        rank.report("gradient", values_of(model.module.p))

    return all(each["gradient"] == [0.0] for each in run(body))


# ---- communication hooks ----


def hook_with_a_backward_hangs():
    """A communication hook runs a backward that reaches a parameter of the model."""

    def body(rank):
        model = DistributedDataParallel(Table(p=torch.zeros(1)))

        def hook(state, bucket):
            with torch.enable_grad():
                (model.module.p * 2).sum().backward()
            return starts_all_reduce(bucket)

        model.register_comm_hook(None, hook)
        rank.attempt("backward", model(["p"], 1.0).backward)

    return all(each["end"] == "hangs" for each in run(body, seconds=2 * TIMEOUT_SECONDS))


def hook_without_an_end_hangs():
    """The hook of rank 0 returns a future that nothing completes."""

    def body(rank):
        model = DistributedDataParallel(Table(p=torch.zeros(1)))
        futures = []

        def hook(state, bucket):
            futures.append(torch.futures.Future())
            if rank.number == 1:
                futures[-1].set_result(bucket.buffer())
            return futures[-1]

        model.register_comm_hook(None, hook)
        rank.attempt("backward", model(["p"], 1.0).backward)

    first, second = run(body, seconds=2 * TIMEOUT_SECONDS)
    return first["end"] == "hangs" and second["backward"] == "ok"


def hook_result_is_not_checked():
    """The hook returns the sum and as many elements again; then, in another model, the sum in
    float64."""

    def body(rank):
        for name in ("long", "double"):
            model = DistributedDataParallel(Table(p=torch.zeros(2)))

            def hook(_, bucket, name=name):
                def change(future):
                    total = future.value()[0]
                    return torch.cat([total, total]) if name == "long" else total.double()

                return dist.all_reduce(bucket.buffer(),
                                       async_op=True).get_future().then(change)

            model.register_comm_hook(None, hook)
            model(["p"], 1.0 + rank.number).backward()
            rank.report(name, (str(model.module.p.grad.dtype), values_of(model.module.p)))

    return all(each[name] == ("torch.float32", [3.0, 3.0])
               for each in run(body) for name in ("long", "double"))


def hook_averages_over_the_default_group():
    """Each rank has a model on a group of its own, with the built-in hook that averages, whose
    state is None; then, as a control, a model without a hook."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    def body(rank):
        groups = [dist.new_group([number]) for number in range(2)]
        for name in ("with", "without"):
            model = DistributedDataParallel(Table(p=torch.zeros(1)),
                                            process_group=groups[rank.number])
            if name == "with":
                model.register_comm_hook(None, allreduce_hook)
            model(["p"], 1.0 + rank.number).backward()
            rank.report("gradient %s the hook" % name, values_of(model.module.p))

    first, second = run(body)
    return (first["gradient with the hook"] == second["gradient with the hook"] == [1.5]
            and first["gradient without the hook"] == [1.0]
            and second["gradient without the hook"] == [2.0])


# ---- buffers, and what is ignored ----


class Buffered(Table):
    """Has a buffer, `seen`."""

    def __init__(self, **parameters):
        super().__init__(**parameters)
        self.register_buffer("seen", torch.zeros(1))


def evaluation_skips_buffers():
    """A forward under no_grad between two training passes. Before each forward rank r sets its
    buffer to r + 1."""

    def body(rank):
        model = DistributedDataParallel(Buffered(p=torch.zeros(1)))

        def forward(name):
            model.module.seen.fill_(rank.number + 1.0)
            loss = model(["p"], 1.0)
            rank.report("buffer in " + name, model.module.seen.tolist())
            return loss

        forward("pass 0").backward()
        with torch.no_grad():
            forward("the evaluation")
        forward("pass 1").backward()
        forward("pass 2").backward()

    second = run(body)[1]
    return ([second["buffer in " + name] for name in
             ("pass 0", "the evaluation", "pass 1", "pass 2")] == [[1.0], [1.0], [2.0], [1.0]])


def ignored_parameter_of_the_root_is_averaged():
    """Parameter a of the outermost module is to be ignored, by its name; so is a name that nothing
    has."""

    def body(rank):
        module = Table(a=torch.zeros(1), b=torch.zeros(1))
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(
            module, ["a", "nothing"])
        model = DistributedDataParallel(module)
        model(["a", "b"], 1.0 + rank.number).backward()
        rank.report("a", values_of(module.a))

    return all(each["a"] == [1.5] for each in run(body))


# ---- what backward and construction leave out ----


def partial_gradients_stay_local():
    """autograd.grad() of a parameter, twice; then backward() of one parameter of two."""

    def body(rank):
        model = DistributedDataParallel(Table(a=torch.zeros(1), b=torch.zeros(1)))

        def loss():
            return model(["a", "b"], 1.0 + rank.number)

        for index in range(2):
            rank.attempt("grad %d" % index, lambda: rank.report(
                "a", torch.autograd.grad(loss(), [model.module.a])[0].tolist()))
        rank.attempt("backward", lambda: loss().backward(inputs=[model.module.a]))
        rank.report("a of backward", values_of(model.module.a))
        rank.attempt("next forward", loss)

    return all(each["grad 0"] == each["grad 1"] == each["backward"] == "ok"
               and each["a"] == each["a of backward"] == [1.0 + number]
               and "finished reduction" in each["next forward"]
               for number, each in enumerate(run(body)))


def pickled_model_is_not_compared():
    """Rank r sets its parameter to r, then pickles the model and loads it. What the loaded model
    holds, and whether it trains."""

    def body(rank):
        model = DistributedDataParallel(Table(p=torch.zeros(1)))
        model.module.p.data.fill_(rank.number)
        loaded = pickle.loads(pickle.dumps(model))
        rank.report("p", loaded.module.p.tolist())
        rank.attempt("backward", lambda: loaded(["p"], 1.0 + rank.number).backward())
        rank.report("gradient", values_of(loaded.module.p))

    return all(each["p"] == [number] and each["backward"] == "ok" and each["gradient"] == [1.5]
               for number, each in enumerate(run(body)))


def forward_rebuilds_before_buffers():
    """What a forward of the second pass starts first, the rebuild of the buckets or the broadcast
    of buffers; and in which pass of a static graph the buckets are those of the limits."""

    class Noting:
        """A reducer that notes its rebuilds."""

        def __init__(self, reducer, calls):
            self.reducer, self.calls = reducer, calls

        def _rebuild_buckets(self):
            if self.reducer._rebuild_buckets():
                self.calls.append("rebuild")
                return True
            return False

        def __getattr__(self, name):
            return getattr(self.reducer, name)

    def body(rank):
        dist._DEFAULT_FIRST_BUCKET_BYTES = 4
        model = DistributedDataParallel(Buffered(a=torch.zeros(1), b=torch.zeros(2)))
        model(["a", "b"], 1.0).backward()
        calls = []
        broadcast = dist._broadcast_coalesced

        def noted(*arguments):
            calls.append("buffers")
            broadcast(*arguments)

        dist._broadcast_coalesced = noted
        model.reducer = Noting(model.reducer, calls)
        model(["a", "b"], 1.0)
        dist._broadcast_coalesced = broadcast
        rank.report("second forward", calls)
        static = DistributedDataParallel(Table(a=torch.zeros(1), b=torch.zeros(2)),
                                         static_graph=True, bucket_cap_mb=4 / 1024 / 1024)
        counts = []
        for _ in range(4):
            loss = static(["a", "b"], 1.0)
            counts.append(len(static.reducer._get_zeros_like_grad_buckets()))
            loss.backward()
        rank.report("buckets of a static graph", counts)

    return all(each["second forward"] == ["rebuild", "buffers"]
               and each["buckets of a static graph"] == [1, 1, 2, 2] for each in run(body))


# ---- uneven inputs ----


def join_hook_divides_by_all():
    """Under join with divide_by_initial_world_size=False; rank 0 has one input, rank 1 two. Without
    a hook, then with the built-in hook that averages."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    def body(rank):
        for name in ("without", "with"):
            model = DistributedDataParallel(Table(p=torch.zeros(1)))
            if name == "with":
                model.register_comm_hook(None, allreduce_hook)
            with Join([model], divide_by_initial_world_size=False):
                for _ in range(1 + rank.number):
                    model.zero_grad(set_to_none=True)
                    model(["p"], 8.0).backward()
            rank.report("last gradient %s the hook" % name, values_of(model.module.p))

    second = run(body)[1]
    return (second["last gradient without the hook"] == [8.0]
            and second["last gradient with the hook"] == [4.0])


def joined_rank_keeps_its_gradient():
    """Rank 0 has one input, rank 1 two, with another gradient; what rank 0 holds in the end."""

    def body(rank):
        model = DistributedDataParallel(Table(p=torch.zeros(1)))
        with Join([model]):
            for index in range(1 + rank.number):
                model.zero_grad(set_to_none=True)
                model(["p"], 2.0 + 6 * index).backward()
        rank.report("last gradient", values_of(model.module.p))

    first, second = run(body)
    return first["last gradient"] == [2.0] and second["last gradient"] == [4.0]


def join_goes_on_after_its_end():
    """A join that all ranks have left; then a training pass, for which rank r sets its buffer to
    r + 1. Counts the all-reduces of the forward."""

    def body(rank):
        model = DistributedDataParallel(Buffered(p=torch.zeros(1)))
        with Join([model]):
            model(["p"], 1.0).backward()
        calls = []
        all_reduce = dist.all_reduce

        def counted(*arguments, **options):
            calls.append(None)
            return all_reduce(*arguments, **options)

        dist.all_reduce = counted
        model.module.seen.fill_(rank.number + 1.0)
        model(["p"], 1.0)
        dist.all_reduce = all_reduce
        rank.report("all-reduces of a forward", len(calls))
        rank.report("buffer", model.module.seen.tolist())

    return all(each["all-reduces of a forward"] == 3 and each["buffer"] == [2.0]
               for each in run(body))


def joined_rank_rebuilds_in_its_own_order():
    """Three parameters of 1, 2 and 3 elements, a bucket for each; the gradient of the last comes
    first. Rank 0, which decides the order of the buckets, has no inputs, then one."""

    def body(rank):
        dist._DEFAULT_FIRST_BUCKET_BYTES = 4
        for inputs in (0, 1):
            model = DistributedDataParallel(
                Table(a=torch.zeros(1), b=torch.zeros(2), c=torch.zeros(3)),
                bucket_cap_mb=4 / 1024 / 1024)
            with Join([model]):
                for _ in range(inputs if rank.number == 0 else 2):
                    model(["a", "b", "c"], 1.0).backward()
            rank.report("buckets, with %d inputs of rank 0" % inputs,
                        [bucket.buffer().numel()
                         for bucket in model.reducer._get_zeros_like_grad_buckets()])

    second = run(body)[1]
    return (second["buckets, with 0 inputs of rank 0"] == [1, 2, 3]
            and second["buckets, with 1 inputs of rank 0"] == [3, 2, 1])


def join_shadows_an_evaluation():
    """Rank 0 has no input. Under the join rank 1 runs a forward under no_grad, then a training
    pass; as a control, the training pass alone."""

    def body(rank):
        for name in ("alone", "evaluation first"):
            model = DistributedDataParallel(Table(p=torch.zeros(1)))

            def train(name=name, model=model):
                with Join([model]):
                    if rank.number == 1:
                        if name == "evaluation first":
                            with torch.no_grad():
                                model(["p"], 1.0)
                        model(["p"], 8.0).backward()

            rank.attempt(name, train)

    return all(each["alone"] == "ok" and each["evaluation first"] != "ok" for each in run(body))


def static_join(inputs_of_rank_0, detection):
    def body(rank):
        model = DistributedDataParallel(Table(p=torch.zeros(1)), static_graph=True,
                                        find_unused_parameters=detection)

        def train():
            with Join([model]):
                for _ in range(inputs_of_rank_0 + 2 * rank.number):
                    model(["p"], 1.0).backward()

        rank.attempt("join", train)

    return [each.get("join", each["end"]) for each in run(body)]


def static_join_fails():
    """Static graph under join: rank 0 has no input; then two inputs, and unused detection is on,
    too; as a control, two inputs without the detection."""
    return (all(each != "ok" for each in static_join(0, False))
            and all(each != "ok" for each in static_join(2, True))
            and static_join(2, False) == ["ok", "ok"])


def sparse_join_is_refused_late():
    """An embedding with sparse gradients under join; rank 0 has no input."""

    def body(rank):
        model = DistributedDataParallel(torch.nn.Embedding(3, 1, sparse=True))

        def train():
            with Join([model]):
                for _ in range(rank.number):
                    model(torch.tensor([1])).sum().backward()

        rank.attempt("join", train)

    first, second = run(body)
    return "undefined Tensor" in first["join"] and second["join"] != "ok"


CONTROL = {call.__name__.replace("_", "-"): call for call in (
    same_order, swapped_gradients)}  # run by name alone
FINDINGS = {call.__name__.replace("_", "-"): call for call in (
    one_hook_fails, failed_hook_stays_failed, join_sends_the_last_map, other_order_is_averaged,
    other_frozen_is_averaged, other_detection_is_not_reported, other_dtype_aborts,
    other_bucket_cap_aborts, other_sparsity_times_out, other_sizes_are_reported_on_one_rank,
    hooks_see_index_zero, gone_rank_is_an_error, stopped_rank_is_an_error,
    slow_rank_is_waited_for, half_sums_are_lost,
    swapped_views_are_taken_for_each_other,
    local_backward_is_averaged, spare_output_ends_static_graph, hidden_output_is_ready_twice,
    failed_backward_blocks_the_next, create_graph_is_averaged,
    two_checkpoints_of_the_model_work, subnormals_follow_the_thread, hook_with_a_backward_hangs,
    hook_without_an_end_hangs, evaluation_skips_buffers,
    ignored_parameter_of_the_root_is_averaged, hook_result_is_not_checked,
    hook_averages_over_the_default_group, partial_gradients_stay_local,
    pickled_model_is_not_compared, forward_rebuilds_before_buffers, join_hook_divides_by_all,
    joined_rank_keeps_its_gradient, join_goes_on_after_its_end,
    joined_rank_rebuilds_in_its_own_order, join_shadows_an_evaluation, static_join_fails,
    sparse_join_is_refused_late)}


def main(names):
    if names == ["--list"]:
        print("\n".join(FINDINGS))
        return 0
    known = {**FINDINGS, **CONTROL}
    unknown = [name for name in names if name not in known]
    if unknown:
        print("no finding %s; there are: %s" % (", ".join(unknown), ", ".join(FINDINGS)))
        return 1
    print("PyTorch %s" % torch.__version__)
    failed = 0
    for name in names or FINDINGS:
        print("%s: %s" % (name, " ".join(known[name].__doc__.split())))
        try:
            shows = known[name]()
        except KeyError as error:
            print("  no rank reported: %s" % error)
            shows = False
        print("%s: %s" % (name, "shows" if shows else "does not show"), flush=True)
        failed += not shows
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
