"""find_unused_parameters; the model returns its output in an object of a class of its own. All parameters are taken
for unused, and the backward raises (P1)."""

import torch
from ranks import DistributedDataParallel, Model, each, failed, run, verdict


class Box:
    def __init__(self, content):
        self.content = content


class Boxed(Model):
    def forward(self, used, factor):
        return Box(super().forward(used, factor))


def body(rank):
    model = DistributedDataParallel(Boxed(a=torch.zeros(1), b=torch.zeros(1)), find_unused_parameters=True)
    rank.attempt("backward", lambda: model("a", 1.0).content.backward())


seen = run(body)
verdict(shown=failed(seen, "backward", "mark a variable ready only once"), right=each(seen, "backward", "ok"))
