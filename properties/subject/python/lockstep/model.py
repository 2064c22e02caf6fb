"""The module that a case trains: a graph of scalars, built from a list of nodes at each forward.

A node is (kind, inputs, ...); an input or an output is (node, slot). Where a gradient s arrives at
a use of a parameter p with a constant c, p gets s * c. Scripts that `lockstep export --python`
writes have these classes, too.
"""

import math

import torch


class Stop(torch.autograd.Function):
    """Hands its value on; no gradient comes back through it (None, which is not zeros)."""

    @staticmethod
    def forward(ctx, value):
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        return None


class Checkpoint(torch.autograd.Function):
    """Hands its value on. When a gradient s comes back, it builds the graph `body` and runs a
    backward with s over that, as the reentrant torch.utils.checkpoint does."""

    @staticmethod
    def forward(ctx, value, model, body, constants):
        ctx.set_materialize_grads(False)
        ctx.model, ctx.body, ctx.constants = model, body, constants
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        if gradient is not None:
            with torch.enable_grad():
                start = torch.zeros((), dtype=torch.float64, requires_grad=True)
                last = ctx.model.build(ctx.body, ctx.constants, start)[-1][0]
            torch.autograd.backward([last], [gradient])
        return gradient, None, None, None


class Holder(torch.nn.Module):
    """A module of one parameter, which a wrapper may wrap by itself."""

    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, constant):
        return (self.weight.double() * constant.reshape(self.weight.shape)).sum()


class Model(torch.nn.Module):
    """`parameters`: records with name, dtype, shape, memory (the dimensions as they lie in memory,
    the outermost first), requires_grad and sparse, or with name and same_as. `holder`: the class of
    the modules that have them."""

    def __init__(self, parameters, holder=Holder):
        super().__init__()
        self.holder = holder
        for record in parameters:
            self.add_module(record["name"], self.make(record))

    def make(self, record):
        if "same_as" in record:
            return getattr(self, record["same_as"])
        shape, memory = record["shape"], record["memory"]
        dtype = getattr(torch, record["dtype"])
        if record["sparse"]:
            table = torch.nn.Embedding(shape[0], math.prod(shape[1:]), sparse=True, dtype=dtype)
            table.weight.requires_grad_(record["requires_grad"])
            return table
        value = torch.ones([shape[each] for each in memory], dtype=dtype)
        value = value.permute([memory.index(each) for each in range(len(memory))])
        return self.holder(torch.nn.Parameter(value, requires_grad=record["requires_grad"]))

    def forward(self, start, call):
        """`start`: what a node without inputs adds to; `call`: a Call."""
        call.received = start.item()
        values = self.build(call.nodes, call.constants, start)
        outputs = [values[node][slot] for node, slot in call.outputs]
        call.sent = [output.item() for output in outputs]
        return outputs

    def build(self, nodes, constants, start):
        """`start` requires a gradient, so that every value does."""
        values = []
        for kind, inputs, *rest in nodes:
            total = torch.zeros((), dtype=torch.float64)
            for one in [values[node][slot] for node, slot in inputs] or [start]:
                total = total + one
            values.append(self.apply_node(kind, total, rest, constants, start))
        return values

    def apply_node(self, kind, total, rest, constants, start):
        if kind == "use":  # a gradient s reaches the parameter as s * constant
            module, constant = getattr(self, rest[0]), constants[rest[1]]
            if not isinstance(constant, tuple):
                return [total + module(constant)]
            rows, elements = constant  # the rows that are looked up, and their elements
            found = module(rows)
            return [total + (found.double() * elements.reshape(found.shape)).sum()]
        if kind == "scale":
            return [total * rest[0]]
        if kind == "stop":
            return [Stop.apply(total)]
        if kind == "detach":
            return [start + total.detach()]
        if kind == "split":
            return [total * 1, total * 2]
        if kind == "checkpoint":
            return [Checkpoint.apply(total, self, rest[0], constants)]
        assert kind == "sum", kind
        return [total]


class Call:
    """One forward: what the module builds, and what it noted of its input and its outputs."""

    def __init__(self, forward, constants):
        self.nodes, self.outputs, self.constants = forward["nodes"], forward["outputs"], constants
        self.received = None
        self.sent = None
