"""Join; rank 0 has no input. Rank 1 runs a forward under no_grad, and rank 0 starts all-reduces for a backward that
never comes: both end in a timeout. Without the evaluation they do not (S2)."""

import torch
from ranks import each, failed, model_of, run, verdict
from torch.distributed.algorithms.join import Join


def body(rank):
    for name in ("alone", "evaluation first"):
        model = model_of()

        def train(name=name, model=model):
            with Join([model]):
                if rank.number == 1:
                    if name != "alone":
                        with torch.no_grad():
                            model("p", 1.0)
                    model("p", 8.0).backward()

        rank.attempt(name, train)


seen = run(body)
verdict(
    shown=each(seen, "alone", "ok") and failed(seen, "evaluation first"),
    right=each(seen, "alone", "ok") and each(seen, "evaluation first", "ok"),
)
