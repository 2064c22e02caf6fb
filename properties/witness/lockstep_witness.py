"""lockstep_witness: raises on the first step whose gradients or parameters should agree on all ranks, and do not.

Copy this one file beside a training script; it needs nothing but PyTorch (2.0 and later).

    import lockstep_witness

    model = DistributedDataParallel(...)
    optimizer = torch.optim.SGD(model.parameters(), ...)
    lockstep_witness.watch(model, optimizer)

From then on each optimizer.step() first compares the gradients of all ranks: each rank hashes its own, one all-gather
of eight bytes a parameter exchanges the hashes, and where they differ every rank raises GradientsDiffer, which names
the parameters and the ranks, and says what the ranks have done since the step before. The same all-gather has the
hashes of a tenth of the parameters, in turns, so that ranks whose parameters drift apart while gradients agree raise
ParametersDiffer. A gradient that is not finite raises NotFinite, which names the rank whose own gradient was not.

A gradient that a backward left local is found if the ranks' data differ, as then the gradients do. What all ranks
compute wrongly in the same way is not found. Gradients that are equal but for the sign of a zero or the bits of a NaN
differ.

Threads: one. Every rank has to take the same steps, as the comparison is a collective: where a rank may leave out a
step on its own, as with GradScaler while gradients are local, give no optimizer and call check() where all ranks come
by. Not for a model under Join, nor for optimizers and wrappers that divide the gradients among the ranks (FSDP, ZeRO).
"""

import collections
import gc
import itertools
import json

import torch
import torch.distributed as dist

__all__ = ["watch", "Witness", "GradientsDiffer", "ParametersDiffer", "NotFinite", "GroupOfOne"]

CHUNK = 1 << 17  # elements that are hashed at once; they and their products stay in the cache
NO_GRADIENT = 1 << 40  # no hash has this value
IS_NOT_FINITE, OWN_IS_NOT_FINITE = 1 << 41, 1 << 42  # of the gradient now, and of this rank's before the reduction
EVENTS = 24  # that are remembered: forwards and backwards since the last step
SAMPLED, SAMPLE = 16, 64  # parameters, and elements of each, that are compared number by number after a difference
MARK = "lockstep_witness"
SYNCED, LOCAL, INNER = "synced forward", "forward under no_sync", "forward without the wrapper"
BACKWARD = "backward"


class GradientsDiffer(RuntimeError):
    """The gradients of a step differ between the ranks; also the base of all that the witness raises.

    step: the number of the step, from 1 on
    parameters: for each parameter whose gradients differ, its name, and the ranks that agree with each other, as lists
    """

    def __init__(self, text, step=0, parameters=()):
        super().__init__(text)
        self.step = step
        self.parameters = dict(parameters)


class ParametersDiffer(GradientsDiffer):
    """The parameters differ between the ranks; `parameters` names those that do."""


class NotFinite(GradientsDiffer):
    """A gradient is not finite; `parameters` has the ranks whose own gradient was not, as one list, which may be empty."""


class GroupOfOne(GradientsDiffer):
    """The model's process group has one rank, and the job has more: nothing is reduced, and nothing can be compared."""


def watch(model, optimizer=None, **options):
    """Compares before each step of `optimizer`; see Witness for the options. Every rank has to call this."""
    return Witness(model, optimizer, **options)


class Hasher:
    """Hashes of tensors, from their bits: 32 bits, kept in 64. Each element is multiplied by an odd number of its own,
    so that a change of any single element changes the hash, and so does, nearly always, any other change."""

    def __init__(self, device):
        generator = torch.Generator().manual_seed(0x10C557E9)
        draw = torch.randint(-(1 << 31), 1 << 31, (2 * CHUNK,), generator=generator, dtype=torch.int64)
        self.odd = (draw.to(torch.int32) | 1).to(device)
        self.product = torch.empty(CHUNK, dtype=torch.int32, device=device)

    def of(self, tensor):
        # A tensor may be the negative or the conjugate of what its memory holds.
        tensor = tensor.resolve_conj().resolve_neg()
        if tensor.is_complex():
            tensor = torch.view_as_real(tensor)
        bits = tensor.reshape(-1)
        bits = bits.view({1: torch.int8, 2: torch.int16}.get(bits.element_size(), torch.int32))
        sums = [self.chunk(bits[begin : begin + CHUNK]) for begin in range(0, bits.numel(), CHUNK)]
        if not sums:
            return torch.zeros((), dtype=torch.int64, device=self.odd.device)
        sums = torch.stack(sums)  # equal chunks in another order are another tensor
        return (sums * self.odd[-len(sums) :]).sum(dtype=torch.int32).to(torch.int64)

    def chunk(self, bits):
        product, odd = self.product[: bits.numel()], self.odd[: bits.numel()]
        if bits.dtype == torch.int32:
            torch.mul(bits, odd, out=product)
        else:
            product.copy_(bits).mul_(odd)
        return product.sum(dtype=torch.int32)


def is_finite(tensor):
    """A tensor of one element, so that a GPU need not be waited for. One pass over the elements."""
    if tensor.is_sparse:
        tensor = tensor._values()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    if tensor.numel() == 0:
        return torch.ones((), dtype=torch.bool, device=tensor.device)
    if tensor.dtype == torch.float16:  # their sum fits into float32
        return torch.isfinite(tensor.sum(dtype=torch.float32))
    least, most = torch.aminmax(tensor)
    return torch.isfinite(least) & torch.isfinite(most)


def accumulator(parameter):
    """The node that adds to the gradient. A reducer keeps the one that the parameter had when it was wrapped; a move or a
    conversion gives the parameter another one, of which the reducer knows nothing."""
    with torch.enable_grad():
        return parameter.expand_as(parameter).grad_fn.next_functions[0][0]


def mark(parameter):
    """Marks the node of the parameter. Returns whether somebody keeps it: else the mark is gone with the node."""
    accumulator(parameter).metadata[MARK] = True
    return is_marked(parameter)


def is_marked(parameter):
    return parameter.requires_grad and MARK in accumulator(parameter).metadata


def kind_of(parameter):
    return "%s on %s" % (str(parameter.dtype).replace("torch.", ""), parameter.device)


class Watched:
    """A parameter as it was when watch() was called."""

    def __init__(self, path, name, parameter, is_wrapped):
        self.path, self.name, self.parameter = path, name, parameter
        self.kind, self.writes = kind_of(parameter), parameter._version
        self.is_kept = mark(parameter)
        self.was_moved = is_wrapped and not self.is_kept  # DistributedDataParallel has kept another node
        self.own_is_finite = None  # of the gradients that backwards have brought since the last comparison

    def change(self, now):
        """What became of the parameter, in words, or None; `now` is the one that the module has in its place."""
        if now is not self.parameter:
            return "replaced by another parameter"
        if kind_of(now) != self.kind:
            return "converted or moved: %s when watch() was called, and %s now" % (self.kind, kind_of(now))
        if self.was_moved or (self.is_kept and now.requires_grad and not is_marked(now)):
            return "moved or converted, and is %s again" % self.kind if self.is_kept else "moved or converted"
        return None


class Witness:
    """Watches one model.

    model: a DistributedDataParallel, or any module all of whose gradients all ranks are to have
    optimizer: its steps begin with a comparison; without one call check()
    every: compares in each step whose number can be divided by this
    parameters_every: the value of each parameter is compared in one of so many comparisons, or oftener; 0: in none
    finite: whether a gradient that is not finite raises; give False if check() is called before a GradScaler, which
        leaves out such steps
    group: the process group of the comparison (default: the model's)
    """

    def __init__(self, model, optimizer=None, every=1, parameters_every=10, finite=True, group=None):
        if every < 1:
            raise ValueError("every is %r: give a number of steps from 1 on" % (every,))
        if parameters_every < 0:
            raise ValueError("parameters_every is %r: give a number from 1 on, or 0 for never" % (parameters_every,))
        self.group = group if group is not None else getattr(model, "process_group", None)
        self.rank, self.world = dist.get_rank(self.group), dist.get_world_size(self.group)
        if group is None and self.world == 1 and dist.get_world_size() > 1:
            raise GroupOfOne(
                "the process group of the model has one rank, and the job has %d: nothing is reduced, and nothing can be"
                " compared. If that is meant, as in a pipeline, give watch() the group." % dist.get_world_size()
            )
        self.model, self.optimizer = model, optimizer
        self.every, self.step, self.comparisons = every, 0, 0
        self.parameters_every, self.finite = parameters_every, finite
        self.wraps = hasattr(model, "require_backward_grad_sync") and hasattr(model, "module")
        self.parameters = self.find_parameters()
        if not self.parameters:
            raise ValueError("the model has no parameter that requires a gradient")
        self.device = self.parameters[0].parameter.device
        self.hashers = {}
        self.values = [None, None]  # samples of the parameters' values, at the comparison before and the last one
        self.events = collections.deque(maxlen=EVENTS)  # forwards and backwards since the last step
        self.in_backward = set()  # the parameters whose gradients the present backward has brought
        self.is_in_wrapper = False
        self.hooks = [model.register_forward_pre_hook(self.note_forward)]
        if self.wraps:
            self.hooks.append(model.module.register_forward_pre_hook(self.note_inner_forward))
        for watched in self.parameters:
            self.hooks.append(watched.parameter.register_hook(self.gradient_hook(watched)))
        if optimizer is not None:
            if not hasattr(optimizer, "register_step_pre_hook"):
                raise ValueError(
                    "this optimizer has no hooks (PyTorch 2.0 has): give none, and call check() before each step"
                )
            self.hooks.append(optimizer.register_step_pre_hook(lambda *_: self.check()))
        begin = torch.stack([self.hash_of(each.parameter, each.parameter) for each in self.parameters]).sum()
        rows = self.gather(torch.stack([torch.tensor(len(self.parameters), device=self.device), begin])).t().tolist()
        if len(set(rows[0])) != 1:
            raise ValueError("the ranks watch different numbers of parameters: %s" % rows[0])
        self.began_equal = len(set(rows[1])) == 1

    def find_parameters(self):
        ignored = set(getattr(self.model, "parameters_to_ignore", ()))
        is_wrapped = isinstance(self.model, torch.nn.parallel.DistributedDataParallel)
        found = []
        for name, parameter in self.model.named_parameters():
            short = name[len("module.") :] if name.startswith("module.") else name
            if parameter.requires_grad and short not in ignored and name not in ignored:
                found.append(Watched(name, short, parameter, is_wrapped))
        return found

    def close(self):
        """Stops watching."""
        for hook in self.hooks:
            hook.remove()
        self.hooks = []

    def note_forward(self, model, inputs):
        self.is_in_wrapper = True
        if torch.is_grad_enabled():
            self.events.append(SYNCED if getattr(model, "require_backward_grad_sync", True) else LOCAL)
            self.in_backward = set()

    def note_inner_forward(self, module, inputs):
        """The wrapper's forward calls this one, too."""
        if torch.is_grad_enabled() and not self.is_in_wrapper:
            self.events.append(INNER)
            self.in_backward = set()
        self.is_in_wrapper = False

    def gradient_hook(self, watched):
        """What is called with the rank's own gradient, before it is added to others, and reduced."""

        def note(gradient):
            if watched in self.in_backward or not self.in_backward:
                self.in_backward = set()
                self.events.append(BACKWARD)
            self.in_backward.add(watched)
            if self.finite:
                own = is_finite(gradient.detach())
                watched.own_is_finite = own if watched.own_is_finite is None else watched.own_is_finite & own

        return note

    def gather(self, mine):
        """What each rank gives, in rows, on the host."""
        mine = mine.to(self.device)
        rows = [torch.empty_like(mine) for _ in range(self.world)]
        dist.all_gather(rows, mine, group=self.group)
        return torch.stack(rows).cpu()

    def exchange(self, fact):
        """What each rank knows, in a list. After a difference, of which all ranks know."""
        text = json.dumps(fact).encode()
        sizes = self.gather(torch.tensor([len(text)])).flatten().tolist()
        rows = self.gather(torch.tensor(list(text.ljust(max(sizes))), dtype=torch.uint8))
        return [json.loads(bytes(row[:size])) for row, size in zip(rows.tolist(), sizes)]

    def hash_of(self, tensor, parameter):
        if tensor.device not in self.hashers:
            self.hashers[tensor.device] = Hasher(tensor.device)
        hasher = self.hashers[tensor.device]
        if tensor.is_sparse:
            tensor = tensor.coalesce()
            both = torch.stack([hasher.of(tensor.indices()), hasher.of(tensor.values())])
            return (both * hasher.odd[:2]).sum(dtype=torch.int32).to(self.device, torch.int64) & 0xFFFFFFFF
        # The elements in the order of the parameter's memory, which spares a copy of channels-last gradients.
        order = sorted(range(parameter.dim()), key=lambda dimension: -parameter.stride(dimension))
        return hasher.of(tensor.detach().permute(order)).to(self.device) & 0xFFFFFFFF

    def code_of(self, watched, now):
        """The hash of a gradient, and what is not finite."""
        if now.grad is None:
            return torch.tensor(NO_GRADIENT, device=self.device)
        code = self.hash_of(now.grad, now)
        if self.finite:
            code = code + IS_NOT_FINITE * (~is_finite(now.grad)).to(self.device)
            if watched.own_is_finite is not None:
                code = code + OWN_IS_NOT_FINITE * (~watched.own_is_finite).to(self.device)
        return code

    @torch.no_grad()
    def check(self):
        """Compares; raises GradientsDiffer on every rank, or returns. Every rank has to call this."""
        self.step += 1
        if self.step % self.every == 0:
            self.compare()
        self.events.clear()
        self.in_backward = set()

    def compare(self):
        current = dict(self.model.named_parameters())
        now = [current.get(each.path, each.parameter) for each in self.parameters]
        turn = []
        if self.parameters_every > 0:
            period = min(self.parameters_every, len(now))
            turn = [index for index in range(len(now)) if (index - self.comparisons) % period == 0]
        self.comparisons += 1
        self.values = [self.values[1], sample_of(now)]
        codes = [self.code_of(watched, each) for watched, each in zip(self.parameters, now)]
        codes += [self.hash_of(now[index], now[index]) for index in turn]
        for watched in self.parameters:
            watched.own_is_finite = None
        rows = self.gather(torch.stack(codes))
        codes, values = rows[:, : len(now)], rows[:, len(now) :]
        if (codes & IS_NOT_FINITE).any():
            self.raise_not_finite(codes)
        hashes = codes & (2 * NO_GRADIENT - 1)
        if (hashes != hashes[0]).any():
            self.raise_gradients_differ(hashes, now)
        if (values != values[0]).any():
            self.raise_parameters_differ(self.gather(torch.stack([self.hash_of(each, each) for each in now])), now)

    def raise_not_finite(self, codes):
        at = (codes & IS_NOT_FINITE).any(dim=0).nonzero().flatten().tolist()
        own = {index: (codes[:, index] & OWN_IS_NOT_FINITE).nonzero().flatten().tolist() for index in at}
        first = max(at, key=lambda index: bool(own[index]))  # the first that some rank brought
        ranks = sorted(set(rank for each in own.values() for rank in each))
        if ranks:
            cause = "That of %s was not before the reduction, in a backward since the comparison before" % names_of(ranks)
        else:
            cause = "Those that the backwards of each rank brought were: the sum, or what came after it, was not"
        raise NotFinite(
            "step %d: the gradients of %d of %d parameters are not finite, first that of %s. %s. Where a GradScaler leaves"
            " out such steps, give watch() finite=False." % (
                self.step, len(at), len(codes[0]), self.parameters[first].name, cause),
            self.step,
            {self.parameters[index].name: [own[index]] for index in at},
        )

    def differing(self, hashes):
        """The indices of what differs, and for each its name and the ranks that agree."""
        differs = (hashes != hashes[0]).any(dim=0).nonzero().flatten().tolist()
        return differs, {self.parameters[index].name: ranks_by_value(hashes[:, index].tolist()) for index in differs}

    def headline(self, what, differs, groups):
        first = self.parameters[differs[0]].name
        each = ["%s %s" % (names_of(group), "agree" if len(group) > 1 else "alone") for group in groups[first]]
        if what == "gradients":
            subject = "the gradients of %d of %d parameters" % (len(differs), len(self.parameters))
        else:
            subject = "the values of %d of %d parameters" % (len(differs), len(self.parameters))
        return "step %d: %s differ between the ranks, first that of %s: %s" % (
            self.step, subject, first, "; ".join(each))

    def raise_gradients_differ(self, hashes, now):
        differs, groups = self.differing(hashes)
        without = [rank for rank, value in enumerate(hashes[:, differs[0]].tolist()) if value == NO_GRADIENT]
        changes = [self.parameters[index].change(now[index]) for index in differs]
        sample = sample_of([now[index].grad for index in differs])
        facts = self.exchange({
            "events": list(self.events),
            "changes": [(self.parameters[index].name, change) for index, change in zip(differs, changes) if change],
            "gradients": None if sample is None else sample.tolist(),
        })
        text = "%s%s. %s%s" % (
            self.headline("gradients", differs, groups),
            "; %s without a gradient" % names_of(without) if without else "",
            story_of([fact["events"] for fact in facts]) if self.wraps else "",
            cause_of_gradients(facts, self.wraps),
        )
        raise GradientsDiffer(text, self.step, groups)

    def raise_parameters_differ(self, hashes, now):
        differs, groups = self.differing(hashes)
        first = differs[0]
        facts = self.exchange({
            "options": [options_of(each) for each in self.optimizers()],
            "update": None if None in self.values else (self.values[1] - self.values[0]).tolist(),
            "writes": now[first]._version - self.parameters[first].writes,
        })
        text = "%s. The gradients agreed in each comparison (%d). %s" % (
            self.headline("parameters", differs, groups),
            self.comparisons,
            cause_of_parameters(facts, self.parameters[first].name, self.began_equal),
        )
        raise ParametersDiffer(text, self.step, groups)

    def optimizers(self):
        """Those that have watched parameters, whether watch() was given one or not."""
        if self.optimizer is not None:
            return [self.optimizer]
        mine = set(id(each.parameter) for each in self.parameters)
        found = [each for each in gc.get_objects() if issubclass(type(each), torch.optim.Optimizer)]
        return [
            each
            for each in found
            if any(id(parameter) in mine for group in each.param_groups for parameter in group["params"])
        ]


def sample_of(tensors):
    """Some elements of some of the tensors, in one; None if one of those is not there, or sparse, or complex."""
    tensors = tensors[:: -(-len(tensors) // SAMPLED)]
    if any(each is None or each.is_sparse or each.is_complex() for each in tensors):
        return None
    return torch.cat([each.detach().reshape(-1)[:SAMPLE].double() for each in tensors])


def factor_of(mine, first, tolerance):
    """By which number `mine` is a multiple of `first`, up to roundings; or None."""
    if mine is None or first is None or len(set(each for each in first if each)) < 2:
        return None
    factor = sum(a * b for a, b in zip(mine, first)) / sum(b * b for b in first)
    rest = sum((a - factor * b) ** 2 for a, b in zip(mine, first))
    return factor if rest <= tolerance**2 * sum(a * a for a in mine) and factor else None


def factors_of(facts, name, tolerance):
    """What the ranks have as multiples of what rank 0 has, in words; None if they are none, or all the same."""
    factors = [factor_of(fact[name], facts[0][name], tolerance) for fact in facts]
    if None in factors or max(factors) - min(factors) <= tolerance:
        return None
    return by_rank(["%.4g" % factor for factor in factors])


def options_of(optimizer):
    """Each option of an optimizer in words, by its name."""
    return {
        "%s of group %d" % (name, index): str(value.tolist() if torch.is_tensor(value) else value)
        for index, group in enumerate(optimizer.param_groups)
        for name, value in group.items()
        if name not in ("params", "param_names")
    }


def by_rank(values):
    """What the ranks have, in words."""
    return ", ".join("%s on %s" % (values[group[0]], names_of(group)) for group in ranks_by_value(values))


def story_of(events):
    """The order of forwards and backwards, in words."""

    def told(mine):
        runs = [(name, len(list(run))) for name, run in itertools.groupby(mine)]
        return ", ".join(name if count == 1 else "%d x %s" % (count, name) for name, count in runs) or "nothing"

    stories = [told(mine) for mine in events]
    if len(set(stories)) == 1:
        return "Since the step before, every rank: %s. " % stories[0]
    return "Since the step before, %s. " % "; ".join("rank %d: %s" % each for each in enumerate(stories))


def cause_of_gradients(facts, wraps):
    """What follows from what the ranks did. The first that applies."""
    changes = [(name, change, rank) for rank, fact in enumerate(facts) for name, change in fact["changes"]]
    if changes:
        ranks = sorted(set(rank for _, _, rank in changes))
        return (
            "%s was %s on %s after the module was wrapped: a reducer does not see gradients of what it was not given."
            " Move and convert a module first, and wrap it then." % (changes[0][0], changes[0][1], names_of(ranks))
        )
    if not wraps:
        return "This module has no wrapper that reduces gradients." + scale_of(facts)
    forwards = [[event for event in fact["events"] if event != BACKWARD] for fact in facts]
    alone = [rank for rank, mine in enumerate(forwards) if SYNCED not in mine]
    if len(alone) == len(facts):
        why = "No backward was reduced: DistributedDataParallel reduces in the backward after a synced forward"
        if any(INNER in mine for mine in forwards) or not any(forwards):
            return why + " of the wrapper. Call the wrapper, and not what it wraps."
        return why + ", and every forward was under no_sync."
    if alone:
        return "There was no synced forward on %s." % names_of(alone)
    if any(BACKWARD not in fact["events"] for fact in facts):
        return "There was no backward that brought a gradient to the watched parameters of some rank."
    last = [backwards_after_last_synced(fact["events"]) for fact in facts]
    late = [rank for rank, kind in enumerate(last) if kind in (LOCAL, INNER)]
    if late:
        return (
            "The last forward was %s on %s: what its backward adds stays on its rank. Of the forwards before a step"
            " the last one has to be synced."
            % (" or ".join(sorted(set(last[rank] for rank in late))).replace("forward ", ""), names_of(late))
        )
    if any(kind == BACKWARD for kind in last):
        return (
            "A synced forward has the next backward reduced, whatever its outputs are; what the backwards after that"
            " one add stays on its rank."
        )
    return (
        "By this order the last backward was reduced, with all that was added before it: what was done to the gradients"
        " after it differs between the ranks, or the reducer is wrong." + scale_of(facts)
    )


def backwards_after_last_synced(events):
    """Which event makes gradients local after the last synced forward and the backward that it has reduced: a forward
    that is not synced, another backward, or none (None)."""
    after = events[len(events) - events[::-1].index(SYNCED) :]
    if BACKWARD not in after:
        return None
    after = after[after.index(BACKWARD) + 1 :]
    if BACKWARD not in after:
        return None
    return next((event for event in after[: after.index(BACKWARD)] if event in (LOCAL, INNER)), BACKWARD)


def scale_of(facts):
    factors = factors_of(facts, "gradients", 1e-4)
    if factors is None:
        return ""
    return " Each rank's are a multiple of those of rank 0, as after a scale or a clip of its own: by %s." % factors


def cause_of_parameters(facts, name, began_equal):
    """What follows from what the ranks know of each other. The first that applies."""
    if not began_equal:
        return "The parameters differed already when watch() was called."
    if len(set(len(fact["options"]) for fact in facts)) > 1:
        return "The ranks have other numbers of optimizers: %s." % by_rank([len(fact["options"]) for fact in facts])
    for each in range(len(facts[0]["options"])):
        for option in facts[0]["options"][each]:
            values = [fact["options"][each].get(option, "none") for fact in facts]
            if len(set(values)) > 1:
                return "The optimizer's options differ: %s is %s." % (option, by_rank(values))
    writes = [fact["writes"] for fact in facts]
    if len(set(writes)) > 1:
        return (
            "The ranks have written to %s other numbers of times since watch(): %s. One has made a step, or a change,"
            " that another has not." % (name, by_rank(writes))
        )
    why = "So the parameters, or the gradients of the step, were changed after a comparison by what a rank did on its own."
    factors = factors_of(facts, "update", 1e-2)
    if factors is not None:
        why += " What the last step changed is a multiple of what it changed on rank 0, as after a scale of its own: by %s."
        why = why % factors
    return why


def ranks_by_value(values):
    """The ranks that have the same value, as lists, in order."""
    groups = {}
    for rank, value in enumerate(values):
        groups.setdefault(value, []).append(rank)
    return list(groups.values())


def names_of(ranks):
    return "%s %s" % ("rank" if len(ranks) == 1 else "ranks", ", ".join(map(str, ranks)))
