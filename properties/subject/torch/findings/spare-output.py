"""Static graph; the model has two outputs, and the loss uses the first one in every pass. From the second pass on
gradients stay local (P11)."""

import torch
from ranks import DistributedDataParallel, Model, each, failed, grad_of, run, verdict


class TwoOutputs(Model):
    def forward(self, factor):
        return self.a * factor, self.b * factor


def body(rank):
    model = DistributedDataParallel(TwoOutputs(a=torch.zeros(1), b=torch.zeros(1)), static_graph=True)
    for index in range(3):
        model.zero_grad(set_to_none=True)
        rank.attempt("pass %d" % index, lambda: model(1.0 + rank.number)[0].backward())
        rank.report("a after pass %d" % index, grad_of(model, "a"))


seen = run(body)
verdict(
    shown=each(seen, "a after pass 0", [1.5])
    and each(seen, "pass 1", "ok")
    and each(seen, "a after pass 1", [1.0], [2.0])
    and failed(seen, "pass 2", "Expected to have finished reduction"),
    right=all(each(seen, "a after pass %d" % index, [1.5]) for index in range(3)),
)
