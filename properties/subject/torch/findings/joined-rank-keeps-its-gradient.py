"""Join; rank 0 has one input, rank 1 two, with another gradient. Rank 0 keeps the gradient of its own last pass
(S2)."""

from ranks import each, grad_of, model_of, run, verdict
from torch.distributed.algorithms.join import Join


def body(rank):
    model = model_of()
    with Join([model]):
        for index in range(1 + rank.number):
            model.zero_grad(set_to_none=True)
            model("p", 2.0 + 6 * index).backward()
    rank.report("p", grad_of(model))


seen = run(body)
verdict(shown=each(seen, "p", [2.0], [4.0]), right=each(seen, "p", [4.0]))
