"""One rank of a case: it trains the program of the case with the wrapper under test, and reports what it saw.

The calls are those of reference/program.h, as properties/observe/training.cc makes them for other subjects.
"""

import contextlib
import ctypes
import datetime
import functools
import gc
import inspect
import json
import os
import signal
import time

import torch
import torch.distributed as dist

from lockstep.model import Call, Holder, Model
from lockstep.programs import Program, first_excluded, note_excluded, steps_late, uneven_forwards
from lockstep.ranks import (BROADCAST, BUFFERS, COLLECTIVES, MOVES, ROOTS, SCALARS, STEPS, declared, die_with_parent,
                            one_line)

FORWARD = -1  # the number of the call that failed, if it is a forward
PR_SET_CHILD_SUBREAPER = 36
TIME_TO_END = 1  # seconds that a process which a wrapper has forked may take to end after its call
CAME_BACK_TWICE = 77  # how a process ends that came back from a wrapper's call beside its rank
INTEGERS = {torch.float16: torch.int16, torch.bfloat16: torch.int16, torch.float32: torch.int32, torch.float64: torch.int64}
NUMBER_OF_PIDS = 4  # that are named


class Misuse(Exception):
    """The wrapper did what no wrapper of a module may do."""


def now_us():
    return time.monotonic_ns() // 1000


def waits():
    """For each thread of this process: the seconds in which it could have run, and waited for a processor."""
    waited = {}
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError, IndexError):  # it has ended just now; the kernel does not count
            with open("/proc/self/task/%s/schedstat" % thread, encoding="ascii") as counts:
                waited[thread] = int(counts.read().split()[1]) * 1e-9
    return waited


def caught(call):
    """None, or what the call raised. SystemExit is an exception like any other here."""
    try:
        call()
    except BaseException as error:
        return one_line(error)
    return None


def bits_of(gradient, parameter):
    """The elements of a gradient in row-major order, as integers."""
    if hasattr(gradient, "full_tensor"):  # a DTensor: each rank has a part of it
        gradient = gradient.full_tensor()
    # A tensor may be the negative of what its memory holds.
    gradient = gradient.detach().resolve_neg()
    own = gradient.to(parameter.dtype)
    # A gradient that is kept beside the parameter may be wider, as Megatron's main_grad is.
    if gradient.dtype != parameter.dtype and not (is_wider(gradient, parameter) and torch.equal(own.to(gradient.dtype), gradient)):
        raise Misuse("a gradient is %s, and its parameter %s" % (gradient.dtype, parameter.dtype))
    return own.contiguous().view(INTEGERS[own.dtype]).flatten().tolist()


def is_wider(gradient, parameter):
    return gradient is not parameter.grad and torch.promote_types(gradient.dtype, parameter.dtype) == gradient.dtype


def accepted(function, options):
    """Those of the options that the function takes."""
    kinds = inspect.signature(function).parameters
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in kinds.values()):
        return options
    return {name: value for name, value in options.items() if name in kinds}


class Group:
    """The default process group. Ranks keep it from case to case as long as all goes well, as to connect takes longer
    than to train most cases."""

    def __init__(self):
        self.name = None

    def join(self, name, file, rank, world, timeout_ms):
        """Connects the ranks, unless the group of this name is there."""
        name = "%s, %d ms" % (name, timeout_ms)
        if self.name == name:
            return
        self.leave()
        timeout = datetime.timedelta(milliseconds=timeout_ms)
        store = self.make_store(dist.FileStore(file, world), rank == 0, timeout)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=timeout)
        self.name = name

    @staticmethod
    def make_store(file, is_first, timeout):
        """A store that is there as long as the group, as groups that a wrapper makes in a later case connect over it: a
        file is gone with the folder of its case, and says only where the store is."""
        first = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timeout) if is_first else None
        if is_first:
            file.set("port", str(first.port))
        return first or dist.TCPStore("127.0.0.1", int(file.get("port")), timeout=timeout)

    def leave(self):
        self.name = None
        if dist.is_initialized():
            caught(dist.destroy_process_group)

    @staticmethod
    def check(seed, when="at the end", dtype=torch.int64):
        """What is wrong if some rank has started other collectives than another one; else None."""
        expected = sum(each * seed for each in range(1, dist.get_world_size() + 1))
        got = torch.tensor([(dist.get_rank() + 1) * seed], dtype=dtype)
        dist.all_reduce(got)
        return None if got == expected else "the ranks are out of step %s: a sum is %g instead of %g" % (when, got, expected)


class Values:
    """The values that the parameters of a model must have: 1 at first, and 1 more after each step of the optimizer. What is
    wrong, with them or with the user's collectives, is said at the end of the case: a rank that raises earlier leaves the others alone, and their errors hide it."""

    def __init__(self):
        self.expected = 1
        self.step = 0  # the number of the program's step
        self.complaint = None  # about the first parameter that the module saw with another value

    def compare(self, seen):
        if self.complaint is None and not bool((seen == self.expected).all()):
            value = seen[seen != self.expected].flatten()[0].item()
            self.complaint = "in step %d the module saw a parameter with the value %g, and it has to be %g" % (
                self.step, value, self.expected)

    def complain(self, complaint):
        self.complaint = self.complaint or complaint

    def check(self):
        if self.complaint is not None:
            raise Misuse(self.complaint)


class ComparedHolder(Holder):
    """A module of one parameter that compares, at each forward, the value that it sees."""

    def __init__(self, values, weight):
        super().__init__(weight)
        self.values = values

    def forward(self, constant):
        self.values.compare(self.weight.detach())
        return super().forward(constant)


class BufferHolder(ComparedHolder):
    """It has a buffer, which is 1 on rank 0, and which the graph keeps for the backward."""

    def __init__(self, values, weight):
        super().__init__(values, weight)
        self.register_buffer("factor", torch.ones((), dtype=torch.float64))

    def forward(self, constant):
        if torch.is_grad_enabled() and self.factor != 1:
            self.values.complain("in step %d the module saw a buffer with the value %g, and it is 1 on rank 0" % (
                self.values.step, self.factor))
        return super().forward(constant) * self.factor


class Optimizer:
    """It adds 1 to the parameters that the wrapped module had at first: the gradients of a case do not depend on values.
    If `steps` is declared, it also steps after each synced step of the program: at once after every other one, and else
    when the next step begins that has a backward, so that forwards without gradients come between."""

    def __init__(self, parameters, values, has_steps):
        self.parameters, self.values, self.has_steps = list(parameters), values, has_steps
        self.is_due = False

    def step(self):
        with torch.no_grad():
            for parameter in self.parameters:
                parameter.add_(1)
        self.values.expected += 1

    def begin(self, kind):
        if self.is_due and kind != "no_grad":
            self.step()
            self.is_due = False

    def end(self, number, kind):
        if not self.has_steps or kind != "synced":
            return
        self.is_due = True
        if not steps_late(number):
            self.begin(kind)


class Training:
    """`group`: a Group; `meet`: waits for all ranks; `end_copy`: called after each call of the user's code (see
    Processes)."""

    def __init__(self, job, function, group, meet, end_copy):
        self.job, self.function, self.group, self.meet, self.end_copy = job, function, group, meet, end_copy
        self.plan = job["plan"]
        self.steps = job["steps"]
        self.can = declared(function)
        self.model = self.wrapped = self.optimizer = None
        self.values = Values()
        self.excluded_from = len(self.steps)  # the first step that the profile excludes
        self.held = []  # outputs that live on until the next step has ended
        self.report = {"construction": None, "recovery": None, "finished": False, "steps": []}

    def run(self):
        waited_before = waits()
        self.train(list(range(self.job["world"])))
        waited = [each - waited_before.get(thread, 0) for thread, each in waits().items()]
        self.report["waited_s"] = max(waited, default=0)
        return self.report

    def train(self, members):
        self.report["construction"] = self.join(members, 0)
        step = 0
        while self.report["construction"] is None and self.report["recovery"] is None:
            is_recovering = False
            while step < min(self.plan["end"], self.excluded_from) and not is_recovering:
                is_recovering = self.train_step(step)
                step += 1
            # An absent rank stays until the others have noticed.
            if is_recovering and not "absent" in self.steps[step - 1]:
                self.leave()
            resume = self.meet(not is_recovering, step)
            self.report["finished"] = not resume["recover"]
            if self.report["finished"]:
                self.finish()
                break
            self.plan, step = resume["plan"], resume["step"]
            self.leave()
            self.report["recovery"] = self.join(resume["members"], resume["generation"])
        else:
            self.leave()

    def finish(self):
        """All ranks came to the end of their programs."""
        self.forget()
        error = None
        if self.plan["all_ended"]:
            # All ranks, whatever they saw.
            error = caught(lambda: self.values.complain(self.group.check(self.job["key"] % 1000 + 1)))
        else:  # the collectives of a pass that some rank has not ended would meet the check
            self.group.leave()
        error = caught(self.values.check) or error
        if self.report["steps"] and self.report["steps"][-1]["error"] is None:
            self.report["steps"][-1]["error"] = error

    def join(self, members, generation):
        """Makes a process group, a module and its wrapper. Returns an error, or None."""
        def make():
            file = os.path.join(self.job["folder"], "python-%d" % generation)
            name = "%s, generation %d" % (self.job["group"], generation)
            self.group.join(name, file, members.index(self.job["rank"]), len(members), self.job["timeout_ms"])
            if generation == 0:
                self.exclude()
            dist._DEFAULT_FIRST_BUCKET_BYTES = self.job["first_bucket_bytes"]  # DistributedDataParallel looks there
            self.make_model(dist.get_rank())
            self.wrapped = self.function(self.model, **accepted(self.function, self.job["options"]))
            self.end_copy()
            if not isinstance(self.wrapped, torch.nn.Module):
                raise Misuse("the function returned %r, and has to return a torch.nn.Module" % type(self.wrapped))
            self.optimizer = Optimizer(self.model.parameters(), self.values, STEPS in self.can)

        return caught(make)

    def exclude(self):
        """Finds the first step that the function's attribute `excludes` leaves out. It has to know what all ranks do."""
        conditions = list(getattr(self.function, "excludes", ())) + [uneven_forwards] * (BUFFERS in self.can)
        if not conditions:
            return
        path = os.path.join(self.job["folder"], "program-%d")
        with open(path % self.job["rank"], "w", encoding="utf-8") as own:
            json.dump([dict(step, constants={}) for step in self.steps], own)
        dist.barrier()
        ranks = []
        for rank in range(self.job["world"]):
            with open(path % rank, encoding="utf-8") as steps:
                ranks.append(json.load(steps))
        self.excluded_from, why = first_excluded(Program(self.job, ranks), conditions)
        if why is not None and self.job["rank"] == 0 and "LOCKSTEP_EXCLUDED" in os.environ:
            note_excluded(os.environ["LOCKSTEP_EXCLUDED"], len(self.steps) - self.excluded_from, len(self.steps), why)

    def make_model(self, rank):
        """If `broadcast` is declared, the ranks begin with different values, and must all see those of rank 0."""
        self.values.expected = 1
        holder = BufferHolder if BUFFERS in self.can else ComparedHolder
        compares = bool(self.can & {STEPS, BROADCAST, BUFFERS})
        self.model = Model(self.parameters(), functools.partial(holder, self.values) if compares else Holder)
        if BROADCAST in self.can:
            with torch.no_grad():
                for parameter in self.model.parameters():
                    parameter.add_(rank)

    def parameters(self):
        """A wrapper that does not take parameters without a dimension gets them with one."""
        records = self.job["parameters"]
        if SCALARS in self.can:
            return records
        return [dict(each, shape=[1], memory=[0]) if each.get("shape") == [] else each for each in records]

    def leave(self):
        """Peers that wait for this rank notice the loss when its connections close."""
        self.forget()
        self.group.leave()

    def forget(self):
        self.model = self.wrapped = self.optimizer = None
        self.held = []
        gc.collect()

    def train_step(self, number):
        """Returns whether all ranks recover after this step, as far as this rank knows."""
        seen = {"step": number, "begin_us": now_us(), "error": None, "failed_call": FORWARD, "gradients": []}
        self.report["steps"].append(seen)
        seen["error"] = caught(lambda: self.run_step(self.steps[number], seen))
        seen["end_us"] = now_us()
        return seen["error"] is not None or number in self.plan["recovers_after"]

    def run_step(self, step, seen):
        number = seen["step"]
        self.begin_step(number, step)
        constants = {name: torch.tensor(values, dtype=torch.float64) for name, values in step["constants"].items()}
        self.values.step = number
        self.optimizer.begin(step["kind"])
        self.run_calls(step, constants, seen)
        self.run_collective(number, "after the backwards of")
        seen["failed_call"] = FORWARD
        seen["gradients"] = [self.gradient_of(record["name"]) for record in self.job["parameters"]]
        self.optimizer.end(number, step["kind"])

    def run_collective(self, number, when):
        """One of the user's own, if the wrapper declares that it may come, in a step that must not raise."""
        if COLLECTIVES in self.can and number not in self.plan["recovers_after"]:
            self.values.complain(self.group.check(number + 1, "%s step %d" % (when, number), torch.float32))

    def begin_step(self, number, step):
        self.run_collective(number, "before")
        if MOVES in self.can and not self.held:  # a graph that lives on has the parameters as they were
            for holder in self.model.children():
                move(holder, holder.weight.dtype)
        kinds = [call[3] for call in step["calls"] if call[0] == "forward"]
        was_synced = number == 0 or self.steps[number - 1]["kind"] == "synced"
        if BUFFERS in self.can and not self.held and was_synced and kinds and set(kinds) == {"synced"}:
            for holder in self.model.children():  # the first forward has to bring those of rank 0
                holder.factor.fill_(1 + dist.get_rank())

    def zero_gradients(self, how):
        if how != "not":
            self.model.zero_grad(set_to_none=how == "to none")

    def run_calls(self, step, constants, seen):
        kept = []
        calls_left = sum(name in ("backward", "held_backward") for name, *_ in step["calls"])
        has_backwards = calls_left > 0
        for name, seen["failed_call"], *rest in step["calls"]:
            if name == "zero_grad":
                self.zero_gradients(*rest)
            if name == "optimizer_step":
                self.optimizer.step()
            if name == "forward":
                number, kind = rest
                outputs = self.run_forward(kind, Call(step["forwards"][number], constants))
                if kind != "no_grad" and not step["forwards"][number]["discard"]:
                    kept += outputs
                del outputs
            if name == "drop":
                kept = [None if number in rest[0] else output for number, output in enumerate(kept)]
            if name == "held_backward":
                calls_left -= 1
                if self.held:  # they are gone after a recovery
                    self.run_backward(step["kind"], [self.held[root] for root in rest[0]], calls_left > 0)
            if name == "backward":
                calls_left -= 1
                chosen = [kept[root] for root in rest[0]]
                if calls_left == 0 and not step["keep_outputs"]:
                    kept = []  # the rank lets go of outputs that it did not use
                self.run_backward(step["kind"], chosen, calls_left > 0)
        if step["calls"]:  # the rank does not skip the step
            self.held = kept if step["hold_outputs"] else []
        if has_backwards and step["kind"] == "synced" and hasattr(self.wrapped, "after_backward"):
            self.wrapped.after_backward()
            self.end_copy()

    def context(self, kind, call):
        """What surrounds a forward or a backward. The context of no_sync() belongs around forwards, as for
        DistributedDataParallel, unless the function's attribute `no_sync` is "backward" or "both"."""
        if kind == "no_grad" and call == "forward":
            return torch.no_grad()
        is_here = getattr(self.function, "no_sync", "forward") in (call, "both")
        if kind == "no_sync" and is_here and hasattr(self.wrapped, "no_sync"):
            return self.wrapped.no_sync()
        return contextlib.nullcontext()

    def run_backward(self, kind, roots, retain_graph):
        ones = [torch.ones_like(each) for each in roots]
        if ROOTS in self.can:  # the same gradients, as these numbers have no rounding
            roots = [each * 0.5 ** (index % 3) for index, each in enumerate(roots, 1)]
            ones = [each * 2.0 ** (index % 3) for index, each in enumerate(ones, 1)]
        with self.context(kind, "backward"):
            if roots and hasattr(self.wrapped, "backward"):
                self.wrapped.backward(roots, ones, retain_graph)
            elif roots:
                torch.autograd.backward(roots, ones, retain_graph=retain_graph)
        self.end_copy()

    def run_forward(self, kind, call):
        start = torch.ones((), dtype=torch.float64, requires_grad=True)
        with self.context(kind, "forward"):
            outputs = self.wrapped(start, call)
            self.end_copy()
        check_forward(start, call, outputs)
        return list(outputs)

    def gradient_of(self, name):
        parameter = getattr(self.model, name).weight
        gradient = self.wrapped.gradient(name) if hasattr(self.wrapped, "gradient") else parameter.grad
        return None if gradient is None else bits_of(gradient, parameter)


def move(module, dtype):
    """Converts what the module has to a wider dtype and back; what is widest gets other memory."""
    wider = torch.float64 if dtype == torch.float32 else torch.float32
    if dtype == torch.float64:
        module._apply(torch.clone)
    else:
        module.to(wider).to(dtype)


def is_same_number(one, other):
    """NaN is the same as NaN: a loss of the largest values may overflow."""
    return one == other or (one != one and other != other)


def check_forward(start, call, outputs):
    """A wrapper hands the input to the module, and the module's outputs to the caller."""
    if start.item() != 1 or start._version != 0:
        raise Misuse("the wrapper changed the input that it was given")
    if call.sent is None:
        raise Misuse("the wrapper returned from a forward without calling the module")
    if call.received != 1:
        raise Misuse("the module received the input %r, and the wrapper was given 1.0" % call.received)
    if not isinstance(outputs, (list, tuple)) or not all(isinstance(each, torch.Tensor) for each in outputs):
        raise Misuse("the wrapper returned %s, and the module a list of tensors" % type(outputs).__name__)
    got = [each.item() if each.numel() == 1 else None for each in outputs]
    if len(got) != len(call.sent) or not all(map(is_same_number, got, call.sent)):
        raise Misuse("the wrapper returned other values than the module: %s instead of %s" % (got, call.sent))


class Processes:
    """Looks after the processes that a wrapper forks: none may go on beside the rank, or after it."""

    def __init__(self, line):
        self.rank = os.getpid()
        self.line = line
        os.register_at_fork(after_in_child=self.begin_child)
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # a process whose parent ends becomes the rank's child

    def begin_child(self):
        die_with_parent()
        self.line.socket.close()

    def end_copy(self):
        """Ends this process if a wrapper has forked it and came back from its call in both."""
        if os.getpid() != self.rank:
            os._exit(CAME_BACK_TWICE)

    def left(self):
        """What is wrong with the processes that were forked since the last call; None if nothing is."""
        complaint = None
        deadline = time.monotonic() + TIME_TO_END
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return complaint
            if pid == 0:
                if time.monotonic() < deadline:  # one that came back twice may be about to end
                    time.sleep(0.01)
                    continue
                return "left processes behind, which a wrapper must not: %s" % self.kill_all()
            if os.WIFEXITED(status) and os.WEXITSTATUS(status) == CAME_BACK_TWICE:
                complaint = "came back twice from a call of the wrapper, which forks"

    @staticmethod
    def children():
        pids = []
        for task in os.listdir("/proc/self/task"):
            with open("/proc/self/task/%s/children" % task) as children:
                pids += [int(each) for each in children.read().split()]
        return pids

    def kill_all(self):
        """Kills the children, then those that they leave, and so on. Returns the numbers of the first ones."""
        killed = []
        while pids := self.children():
            killed += pids
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        return ", ".join(str(pid) for pid in killed[:NUMBER_OF_PIDS])


def serve_rank(line, function):
    """Runs one rank of case after case, until the other end is gone."""
    # After a fork PyTorch 2 makes its pool of threads anew at its first use. Two threads that come there at the same time
    # can end the process ("Invalid thread pool!"); this thread is alone yet.
    torch.set_num_threads(1)
    processes, group = Processes(line), Group()

    def meet(finished, next_step):
        line.send("m" + json.dumps([finished, next_step]))
        answer = line.receive()
        if answer is None:
            os._exit(1)
        return json.loads(answer)

    while (text := line.receive()) is not None:
        die_with_parent()  # not earlier: a rank gets its final parent only shortly before
        report = Training(json.loads(text), function, group, meet, processes.end_copy).run()
        complaint = processes.left()
        line.send("e" + complaint if complaint else "d" + json.dumps(report))
