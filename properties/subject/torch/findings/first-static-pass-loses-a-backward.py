"""Static graph, passes that the user ends by hand (require_manual_backward_finalization). The model has two losses, one
of p and one of q, and the first pass has a backward for each of them. PyTorch launches all buckets when the first
backward ends, with nothing for q, and when the user ends the pass it writes that sum over the gradient that the second
backward has left in q, without an error (P7, P11). Expected: the means, as in plain mode, or an error, as in dynamic
mode. A version without such passes has nothing to show."""

from ranks import DistributedDataParallel, Model, each, failed, grad_of, run, verdict

import torch

IS_THERE = hasattr(DistributedDataParallel, "finalize_backward")


class TwoLosses(Model):
    def forward(self, factor):
        return super().forward("p", factor), super().forward("q", factor)


def body(rank):
    model = DistributedDataParallel(TwoLosses(p=torch.zeros(1), q=torch.zeros(1)), static_graph=True)
    model.require_manual_backward_finalization = True
    first, second = model(10.0 * (rank.number + 1))
    first.backward(retain_graph=True)
    if rank.attempt("second backward", second.backward):
        rank.report("q before the end", grad_of(model, "q"))
        rank.attempt("the end", model.finalize_backward)
    rank.report("p", grad_of(model, "p"))
    rank.report("q", grad_of(model, "q"))


seen = run(body) if IS_THERE else []
verdict(
    shown=IS_THERE and each(seen, "the end", "ok") and each(seen, "p", [15.0]) and each(seen, "q", [0.0]),
    right=not IS_THERE or failed(seen, "second backward") or each(seen, "q", [15.0]),
)
