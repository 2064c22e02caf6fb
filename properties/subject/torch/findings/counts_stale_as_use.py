"""Dynamic mode: a is in the graph, but no gradient reaches it. The gradient that it holds, which differs from rank
to rank, is averaged (G6)."""

import torch
from ranks import DistributedDataParallel, Model, each, grad_of, run, verdict


class Stop(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        return None


class Stopped(Model):
    def forward(self):
        return (Stop.apply(self.a) + self.b).sum()


def body(rank):
    model = DistributedDataParallel(Stopped(a=torch.zeros(1), b=torch.zeros(1)), find_unused_parameters=True)
    model.module.a.grad = torch.full((1,), 10.0 + 6 * rank.number)
    model().backward()
    rank.report("a", grad_of(model, "a"))


seen = run(body)
verdict(shown=each(seen, "a", [13.0]), right=each(seen, "a", [10.0], [16.0]))
