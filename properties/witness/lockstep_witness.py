"""lockstep_witness: raises on the first step whose gradients should agree on all ranks, and do not.

Copy this one file beside a training script; it needs nothing but PyTorch (2.0 and later).

    import lockstep_witness

    model = DistributedDataParallel(...)
    optimizer = torch.optim.SGD(model.parameters(), ...)
    lockstep_witness.watch(model, optimizer)

From then on each optimizer.step() first compares the gradients of all ranks: each rank hashes its own, one all-gather
of eight bytes a parameter exchanges the hashes, and where they differ every rank raises GradientsDiffer, which names
the parameters and the ranks, and says whether a forward of the wrapper was synced at all.

A gradient that a backward left local is found if the ranks' data differ, as then the gradients do. What all ranks
compute wrongly in the same way is not found. Gradients that are equal but for the sign of a zero or the bits of a NaN
differ.

Threads: one. Every rank has to take the same steps, as the comparison is a collective: where a rank may leave out a
step on its own, as with GradScaler while gradients are local, give no optimizer and call check() where all ranks come
by. Not for a model under Join, nor for optimizers and wrappers that divide the gradients among the ranks (FSDP, ZeRO).
"""

import torch
import torch.distributed as dist

__all__ = ["watch", "Witness", "GradientsDiffer"]

CHUNK = 1 << 17  # elements that are hashed at once; they and their products stay in the cache
NO_GRADIENT = 1 << 40  # no hash has this value


class GradientsDiffer(RuntimeError):
    """The gradients of a step differ between the ranks.

    step: the number of the step, from 1 on
    parameters: for each parameter whose gradients differ, its name, and the ranks that agree with each other, as lists
    """

    def __init__(self, text, step, parameters):
        super().__init__(text)
        self.step = step
        self.parameters = parameters


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


class Witness:
    """Watches one model.

    model: a DistributedDataParallel, or any module all of whose gradients all ranks are to have
    optimizer: its steps begin with a comparison; without one call check()
    every: compares in each step whose number can be divided by this
    group: the process group of the comparison (default: the model's)
    """

    def __init__(self, model, optimizer=None, every=1, group=None):
        if every < 1:
            raise ValueError("every is %r: give a number of steps from 1 on" % (every,))
        self.group = group if group is not None else getattr(model, "process_group", None)
        self.rank, self.world = dist.get_rank(self.group), dist.get_world_size(self.group)
        self.every, self.step = every, 0
        ignored = set(getattr(model, "parameters_to_ignore", ()))
        self.parameters = []  # (name, parameter)
        for name, parameter in model.named_parameters():
            short = name[len("module.") :] if name.startswith("module.") else name
            if parameter.requires_grad and short not in ignored and name not in ignored:
                self.parameters.append((short, parameter))
        if not self.parameters:
            raise ValueError("the model has no parameter that requires a gradient")
        self.device = self.parameters[0][1].device
        self.hashers = {}
        # Forwards since the last comparison: of the wrapper, synced and not; of the module, by the wrapper or not.
        self.synced = self.local = self.inner = 0
        self.hooks = [model.register_forward_pre_hook(self.count_forward)]
        self.wraps = hasattr(model, "require_backward_grad_sync") and hasattr(model, "module")
        if self.wraps:
            self.hooks.append(model.module.register_forward_pre_hook(self.count_inner))
        if optimizer is not None:
            if not hasattr(optimizer, "register_step_pre_hook"):
                raise ValueError(
                    "this optimizer has no hooks (PyTorch 2.0 has): give none, and call check() before each step"
                )
            self.hooks.append(optimizer.register_step_pre_hook(lambda *_: self.check()))
        counts = self.gather(torch.tensor([len(self.parameters)]))
        if len(set(counts.flatten().tolist())) != 1:
            raise ValueError("the ranks watch different numbers of parameters: %s" % counts.flatten().tolist())

    def close(self):
        """Stops watching."""
        for hook in self.hooks:
            hook.remove()
        self.hooks = []

    def count_forward(self, model, inputs):
        if torch.is_grad_enabled():
            if getattr(model, "require_backward_grad_sync", True):
                self.synced += 1
            else:
                self.local += 1

    def count_inner(self, module, inputs):
        if torch.is_grad_enabled():
            self.inner += 1

    def gather(self, mine):
        """What each rank gives, in rows, on the host. The one collective of a comparison."""
        mine = mine.to(self.device)
        rows = [torch.empty_like(mine) for _ in range(self.world)]
        dist.all_gather(rows, mine, group=self.group)
        return torch.stack(rows).cpu()

    def hash_of(self, parameter):
        gradient = parameter.grad
        if gradient is None:
            return torch.tensor(NO_GRADIENT)
        if gradient.device not in self.hashers:
            self.hashers[gradient.device] = Hasher(gradient.device)
        hasher = self.hashers[gradient.device]
        if gradient.is_sparse:
            gradient = gradient.coalesce()
            both = torch.stack([hasher.of(gradient.indices()), hasher.of(gradient.values())])
            return (both * hasher.odd[:2]).sum(dtype=torch.int32).to(torch.int64)
        # The elements in the order of the parameter's memory, which spares a copy of channels-last gradients.
        order = sorted(range(parameter.dim()), key=lambda dimension: -parameter.stride(dimension))
        return hasher.of(gradient.permute(order))

    @torch.no_grad()
    def check(self):
        """Compares; raises GradientsDiffer on every rank, or returns. Every rank has to call this."""
        self.step += 1
        if self.step % self.every != 0:
            return
        forwards = [self.synced, self.local, max(0, self.inner - self.synced - self.local)]
        self.synced = self.local = self.inner = 0
        hashes = [self.hash_of(parameter).to(self.device) for _, parameter in self.parameters]
        rows = self.gather(torch.cat([torch.stack(hashes), torch.tensor(forwards, device=self.device)]))
        hashes, forwards = rows[:, : len(hashes)], rows[:, len(hashes) :]
        differs = (hashes != hashes[0]).any(dim=0).nonzero().flatten().tolist()
        if not differs:
            return
        groups = {self.parameters[index][0]: ranks_by_value(hashes[:, index].tolist()) for index in differs}
        first = differs[0]
        without = [rank for rank, value in enumerate(hashes[:, first].tolist()) if value == NO_GRADIENT]
        text = (
            "step %d: the gradients of %d of %d parameters differ between the ranks, first that of %s: %s%s. %s"
            % (
                self.step,
                len(differs),
                len(self.parameters),
                self.parameters[first][0],
                "; ".join(
                    "%s %s" % (names_of(group), "agree" if len(group) > 1 else "alone")
                    for group in groups[self.parameters[first][0]]
                ),
                "; %s without a gradient" % names_of(without) if without else "",
                self.cause(forwards),
            )
        )
        raise GradientsDiffer(text, self.step, groups)

    def cause(self, forwards):
        """What the forwards since the last comparison say of the reason."""
        if not self.wraps:
            return "This module has no wrapper that reduces gradients."
        synced, local, unwrapped = ([row[index] for row in forwards.tolist()] for index in range(3))
        counts = (
            "Forwards of the wrapper by rank: %s synced, %s under no_sync; of its module without the wrapper: %s. "
            % (synced, local, unwrapped)
        )
        if not any(synced):
            return counts + (
                "No backward was reduced: DistributedDataParallel reduces in the backward after a synced forward"
                " of the wrapper. Call the wrapper, and not what it wraps."
            )
        return counts + (
            "A synced forward has the next backward reduced, whatever its outputs are; what later backwards, or"
            " backwards without the wrapper, add stays on its rank. See which backward came when."
        )


def ranks_by_value(values):
    """The ranks that have the same value, as lists, in order."""
    groups = {}
    for rank, value in enumerate(values):
        groups.setdefault(value, []).append(rank)
    return list(groups.values())


def names_of(ranks):
    return "%s %s" % ("rank" if len(ranks) == 1 else "ranks", ", ".join(map(str, ranks)))
