"""The sparse gradient of a table was zeroed in place; then one rank looks up no row. A rank's process is aborted
(S1)."""

import torch
from ranks import DistributedDataParallel, each, run, verdict


def body(rank):
    model = DistributedDataParallel(torch.nn.Embedding(3, 2, sparse=True))
    rows = torch.tensor([1] if rank.number == 0 else [], dtype=torch.long)
    for index in range(2):
        rank.attempt("pass %d" % index, lambda: model(rows).sum().backward())
        rank.report("sums %d" % index, model.module.weight.grad.to_dense().sum().item())
        model.zero_grad(set_to_none=False)


seen = run(body)
verdict(
    shown=each(seen, "pass 0", "ok") and any(one["end"] == "SIGABRT" for one in seen),
    right=all(each(seen, "pass %d" % index, "ok") and each(seen, "sums %d" % index, 1.0) for index in range(2)),
)
