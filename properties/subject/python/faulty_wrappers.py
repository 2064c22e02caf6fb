"""Wrappers that are wrong, each in one way, for the tests: the fuzzer has to find each of them, and say what it is."""

import contextlib
import os
import subprocess
import sys
import time

import torch
import torch.distributed as dist


class Wrapper(torch.nn.Module):
    """An all-reduce by hand that is right where uses have gradients; see examples/all_reduce.py."""

    def __init__(self, module):
        super().__init__()
        self.module = module
        self.trained = [each for each in module.parameters() if each.requires_grad]

    def forward(self, *arguments):
        return self.module(*arguments)

    def average(self, parameter, ranks):
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad)
        parameter.grad /= ranks

    def after_backward(self):
        for parameter in self.trained:
            self.average(parameter, dist.get_world_size())


class GathersOnOneRank(Wrapper):
    """The last rank gathers where others reduce."""

    def average(self, parameter, ranks):
        if dist.get_rank() == ranks - 1:
            dist.all_gather([torch.empty_like(parameter) for _ in range(ranks)], parameter.grad)
        else:
            super().average(parameter, ranks)


class LeavesOneOut(Wrapper):
    """The last rank leaves out the last parameter."""

    def after_backward(self):
        ranks = dist.get_world_size()
        for parameter in self.trained[: len(self.trained) - (dist.get_rank() == ranks - 1)]:
            self.average(parameter, ranks)


def gathers_on_one_rank(module):
    return GathersOnOneRank(module)


def leaves_one_out(module):
    return LeavesOneOut(module)


class SkipsNone(Wrapper):
    """A parameter without a gradient on some rank is left out, there alone or on all ranks alike."""

    def after_backward(self):
        has_grad = torch.tensor([each.grad is not None for each in self.trained], dtype=torch.int32)
        dist.all_reduce(has_grad, op=dist.ReduceOp.MIN)
        for parameter, everywhere in zip(self.trained, has_grad.tolist()):
            if everywhere:
                self.average(parameter, dist.get_world_size())


class CountsPasses(Wrapper):
    """After passes under no_sync it divides by their number, too."""

    def __init__(self, module):
        super().__init__(module)
        self.passes = 0

    def forward(self, *arguments):
        self.passes += torch.is_grad_enabled()
        return self.module(*arguments)

    def after_backward(self):
        for parameter in self.trained:
            self.average(parameter, dist.get_world_size() * max(self.passes, 1))
        self.passes = 0


class FlagInBackward(Wrapper):
    """Right: it averages at the end of a backward, if it is not under no_sync then, whatever the forward was under."""

    def __init__(self, module):
        super().__init__(module)
        self.is_synced, self.is_queued, self.nodes = True, False, []
        for parameter in self.trained:
            node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
            node.register_hook(lambda *_: self.note_gradient())
            self.nodes.append(node)

    def note_gradient(self):
        if self.is_synced and not self.is_queued:
            self.is_queued = True
            torch.autograd.Variable._execution_engine.queue_callback(self.average_all)

    def average_all(self):
        self.is_queued = False
        for parameter in self.trained:
            self.average(parameter, dist.get_world_size())

    def after_backward(self):
        pass

    @contextlib.contextmanager
    def no_sync(self):
        self.is_synced = False
        try:
            yield
        finally:
            self.is_synced = True


class LosesLocalGradients(FlagInBackward):
    """The gradients of local backwards are lost: it begins each synced forward without gradients."""

    def forward(self, *arguments):
        if self.is_synced and torch.is_grad_enabled():
            for parameter in self.trained:
                parameter.grad = None
        return super().forward(*arguments)


class SwallowsErrors(Wrapper):
    """Goes on with its own gradient where an all-reduce fails, as where a rank is absent."""

    def average(self, parameter, ranks):
        with contextlib.suppress(RuntimeError):
            super().average(parameter, ranks)


def swallows_errors(module):
    return SwallowsErrors(module)


def notices_absent_ranks(module):
    return Wrapper(module)


swallows_errors.can = notices_absent_ranks.can = "absent discard"


class FirstHook(Wrapper):
    """Takes a gradient at the first hook of a backward; what a second hook adds is lost."""

    def __init__(self, module):
        super().__init__(module)
        self.taken, self.nodes = {}, []
        for parameter in self.trained:
            node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
            node.register_hook(lambda *_, parameter=parameter: self.take(parameter))
            self.nodes.append(node)

    def take(self, parameter):
        if parameter not in self.taken:
            self.taken[parameter] = parameter.grad.clone()

    def after_backward(self):
        for parameter, gradient in self.taken.items():
            parameter.grad = gradient
        self.taken.clear()
        super().after_backward()


def first_hook(module):
    return FirstHook(module)


first_hook.can = "checkpoint repeated_hooks"


def last_hook(module):
    return Wrapper(module)


last_hook.can = "checkpoint several_backwards repeated_hooks"


def repeated_hooks_of_torch(module):
    return Wrapper(module)


repeated_hooks_of_torch.can, repeated_hooks_of_torch.contract = "checkpoint repeated_hooks", "torch"


def flag_in_backward(module):
    return FlagInBackward(module)


flag_in_backward.can, flag_in_backward.no_sync = "no_sync", "both"


def loses_local_gradients(module):
    return LosesLocalGradients(module)


loses_local_gradients.can, loses_local_gradients.no_sync = "no_sync", "both"


def flag_in_backward_undeclared(module):
    return FlagInBackward(module)


flag_in_backward_undeclared.can = "no_sync"


def cannot_interleave(module):
    return FlagInBackward(module)


cannot_interleave.can, cannot_interleave.no_sync = "no_sync interleaved", "both"


def skips_none(module):
    return SkipsNone(module)


skips_none.can = "dynamic"


def counts_passes(module):
    return CountsPasses(module)


counts_passes.can = "no_sync"


def counts_passes_that_nobody_makes(module):
    """Right, as its profile excludes the steps that are not."""
    return CountsPasses(module)


def local_step(program, step):
    return program.kind(step) == "no_sync"


counts_passes_that_nobody_makes.can = "no_sync"
counts_passes_that_nobody_makes.excludes = [local_step]


class BackwardDecides(Wrapper):
    """A backward averages, unless it is in the context of no_sync()."""

    is_local = False

    @contextlib.contextmanager
    def no_sync(self):
        self.is_local = True
        yield
        self.is_local = False

    def backward(self, outputs, ones, retain_graph):
        torch.autograd.backward(outputs, ones, retain_graph=retain_graph)
        if not self.is_local:
            super().after_backward()

    def after_backward(self):
        pass


def lets_the_backward_decide(module):
    """Right, as it says where its context belongs."""
    return BackwardDecides(module)


lets_the_backward_decide.can, lets_the_backward_decide.no_sync = "no_sync", "backward"


def hides_that_the_backward_decides(module):
    return BackwardDecides(module)


hides_that_the_backward_decides.can = "no_sync"


def computes_with_old_values(module):
    """The forward sees what the parameters were at the forward before."""

    class Delays(Wrapper):
        def forward(self, *arguments):
            now = [each.detach().clone() for each in self.module.parameters()]
            self.set_values(getattr(self, "before", now))
            try:
                return self.module(*arguments)
            finally:
                self.set_values(now)
                self.before = now

        def set_values(self, values):
            with torch.no_grad():
                for parameter, value in zip(self.module.parameters(), values):
                    parameter.copy_(value)

    return Delays(module)


computes_with_old_values.can = "steps"


def sees_what_the_optimizer_did(module):
    """Right."""
    return Wrapper(module)


sees_what_the_optimizer_did.can = "steps no_grad"


def begins_alone(module):
    """Each rank keeps its own weights."""
    return Wrapper(module)


begins_alone.can = "broadcast"


def begins_together(module):
    """Right: all ranks get the weights of rank 0, over a group that is made in each case."""
    group = dist.new_group()
    for parameter in module.parameters():
        dist.broadcast(parameter.detach(), 0, group)
    return Wrapper(module)


begins_together.can = "broadcast frozen"


class BroadcastsBuffers(Wrapper):
    """Each forward brings the buffers of rank 0: in place, or as new tensors."""

    in_place = True

    def forward(self, *arguments):
        for holder in self.module.children() if torch.is_grad_enabled() else ():
            factor = holder.factor.clone()
            dist.broadcast(factor, 0)
            if self.in_place:
                holder.factor.copy_(factor)
            else:
                holder.factor = factor
        return super().forward(*arguments)


def broadcasts_in_place(module):
    """What an earlier forward has kept for its backward changes."""
    return BroadcastsBuffers(module)


broadcasts_in_place.can = "buffers several_forwards"


def ddp_with_buffers(module):
    """DistributedDataParallel brings buffers in place at each forward."""
    return torch.nn.parallel.DistributedDataParallel(module)


ddp_with_buffers.can = "buffers several_forwards"


def broadcasts_copies(module):
    """Right."""
    wrapped = BroadcastsBuffers(module)
    wrapped.in_place = False
    return wrapped


broadcasts_copies.can = "buffers several_forwards several_backwards shared no_grad no_sync"


def keeps_own_buffers(module):
    return Wrapper(module)


keeps_own_buffers.can = "buffers"


def ignores_roots(module):
    """Its backward begins with ones, whatever it is given."""

    class Ones(Wrapper):
        def backward(self, outputs, gradients, retain_graph):
            torch.autograd.backward(outputs, [torch.ones_like(each) for each in outputs], retain_graph=retain_graph)

    return Ones(module)


ignores_roots.can = "roots"


def loses_moved_parameters(module):
    """Its hooks are on nodes that a converted parameter has no more."""
    return FlagInBackward(module)


loses_moved_parameters.can = "moves"


def allows_everything(module):
    """Right: it looks at the gradients after the backward."""
    return Wrapper(module)


allows_everything.can = "roots moves collectives no_grad several_backwards float64 float16 strides"


class LateOnOneRank(Wrapper):
    """The last rank averages when somebody looks at a gradient, and the others after the backward: right as long as nobody
    starts a collective in between."""

    is_due = False

    def after_backward(self):
        self.is_due = True
        if dist.get_rank() != dist.get_world_size() - 1:
            self.average_due()

    def average_due(self):
        if self.is_due:
            self.is_due = False
            super().after_backward()

    def gradient(self, name):
        self.average_due()
        return getattr(self.module, name).weight.grad


def late_on_one_rank(module):
    return LateOnOneRank(module)


late_on_one_rank.can = "collectives"


def late_on_one_rank_alone(module):
    """Right, as nothing else runs."""
    return LateOnOneRank(module)


class MainGrad(Wrapper):
    """Right: the averages are kept in float32 beside the parameters."""

    rest = 0

    def __init__(self, module):
        super().__init__(module)
        self.averages = {}

    def average(self, parameter, ranks):
        wide = parameter.grad.float()
        dist.all_reduce(wide)
        wide /= ranks
        parameter.grad.copy_(wide)
        self.averages[parameter] = wide + self.rest if parameter.dtype == torch.bfloat16 else wide

    def gradient(self, name):
        parameter = getattr(self.module, name).weight
        return self.averages.get(parameter, parameter.grad)


def main_grad(module):
    return MainGrad(module)


main_grad.can = "bfloat16 float16"


def main_grad_with_a_rest(module):
    """What it keeps is no average of numbers of the parameter's type."""
    wrapped = MainGrad(module)
    wrapped.rest = 2.0**-20
    return wrapped


main_grad_with_a_rest.can = "bfloat16"


def takes_bfloat16_for_float16(module):
    class Mistaken(Wrapper):
        def average(self, parameter, ranks):
            if parameter.dtype != torch.bfloat16:
                return super().average(parameter, ranks)
            wide = parameter.grad.view(torch.float16).float()
            dist.all_reduce(wide)
            parameter.grad.copy_(wide / ranks)

    return Mistaken(module)


takes_bfloat16_for_float16.can = "bfloat16"


def unknown_place_of_no_sync(module):
    return Wrapper(module)


unknown_place_of_no_sync.no_sync = "sideways"


def excludes_without_a_list(module):
    return Wrapper(module)


excludes_without_a_list.excludes = "everything"


def does_not_divide(module):
    class Sums(Wrapper):
        def average(self, parameter, ranks):
            dist.all_reduce(parameter.grad)

    return Sums(module)


def divides_before(module):
    """It scales each rank's gradient, and declares that it divides the sum: other bits, where values round."""

    class Before(Wrapper):
        def average(self, parameter, ranks):
            parameter.grad /= ranks
            dist.all_reduce(parameter.grad)

    return Before(module)


divides_before.order, divides_before.scale = "Gloo's ring", "divide after"


def negates_lazily(module):
    """Right: its gradients are tensors whose memory holds the negative."""

    class Negative(Wrapper):
        def average(self, parameter, ranks):
            parameter.grad = parameter.grad.resolve_neg()  # which an all-reduce would not do
            super().average(parameter, ranks)
            values = parameter.grad
            parameter.grad = torch.complex(torch.zeros_like(values), -values).conj().imag
            assert parameter.grad.is_neg()

    return Negative(module)


def adds_gathered(module, backwards):
    """It gathers the gradients, and adds them in the order of the ranks or backwards."""

    class Gathered(Wrapper):
        def average(self, parameter, ranks):
            parts = [torch.empty_like(parameter) for _ in range(ranks)]
            dist.all_gather(parts, parameter.grad.contiguous())
            total, *others = reversed(parts) if backwards else parts
            for part in others:
                total = total + part
            parameter.grad = total / ranks

    return Gathered(module)


def adds_from_the_last(module):
    """It adds from the last rank down, and declares the order of the ranks."""
    return adds_gathered(module, backwards=True)


adds_from_the_last.order, adds_from_the_last.scale = "rank order", "divide after"


def adds_by_rank(module):
    """Right: it adds in the order that it declares."""
    return adds_gathered(module, backwards=False)


adds_by_rank.order, adds_by_rank.scale = "rank order", "divide after"


def sums(module):
    """Right: a loss that was divided by the tokens of all ranks already needs the sum of the gradients."""
    return does_not_divide(module)


sums.scale = "sum"


def averages(module):
    """It averages, and declares that it sums."""
    return Wrapper(module)


averages.scale = "sum"


def unknown_order(module):
    return Wrapper(module)


unknown_order.order = "alphabetical"


def unknown_library(module):
    return Wrapper(module)


unknown_library.order = "mpich==1.0"


def unknown_scale(module):
    return Wrapper(module)


unknown_scale.scale = "halve"


def raises(module):
    raise ValueError("the wrapper does not like this module\nand says so in two lines")


def raises_in_backward(module):
    class Raises(Wrapper):
        def after_backward(self):
            raise ValueError("no backward today")

    return Raises(module)


class SaysNothing(Exception):
    def __str__(self):
        raise ValueError("not even this")


def raises_without_a_text(module):
    raise SaysNothing


def hangs_in_backward(module):
    class Hangs(Wrapper):
        def after_backward(self):
            time.sleep(1000)

    return Hangs(module)


def exits(module):
    sys.exit(3)


def ends_the_process(module):
    os._exit(3)


def hangs(module):
    time.sleep(1000)


def returns_a_list(module):
    return [module]


def changes_inputs(module):
    class Changes(Wrapper):
        def forward(self, start, call):
            return self.module(start * 2, call)

    return Changes(module)


def changes_inputs_in_place(module):
    class Changes(Wrapper):
        def forward(self, start, call):
            outputs = self.module(start, call)
            with torch.no_grad():
                start += 1
            return outputs

    return Changes(module)


def returns_a_dict(module):
    class Returns(Wrapper):
        def forward(self, *arguments):
            return dict(enumerate(self.module(*arguments)))

    return Returns(module)


def changes_outputs(module):
    class Changes(Wrapper):
        def forward(self, *arguments):
            return [each + 1 for each in self.module(*arguments)]

    return Changes(module)


def does_not_call(module):
    class Lazy(Wrapper):
        def forward(self, *arguments):
            return []

    return Lazy(module)


def forks(module):
    os.fork()
    return Wrapper(module)


def leaves_a_process(module):
    subprocess.Popen(["sleep", "4711"])
    return Wrapper(module)


def leaves_an_orphan(module):
    subprocess.run(["sh", "-c", "sleep 4711 & sleep 4711 &"], check=True)
    return Wrapper(module)


def closes_descriptors(module):
    os.closerange(3, 1000)
    return Wrapper(module)


def wrong_declaration(module):
    return Wrapper(module)


wrong_declaration.can = ["teleport"]


def wrong_contract(module):
    return Wrapper(module)


wrong_contract.contract = "nobody's"

not_a_function = 4711
