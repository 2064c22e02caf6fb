"""Join, dynamic mode. Rank 0 used b in its only input and has joined; rank 1 uses a alone in its second. No rank
uses b, and b's gradient becomes zeros, where None is right (S2, G5)."""

from ranks import grad_of, model_of, run, verdict
from torch.distributed.algorithms.join import Join


def body(rank):
    model = model_of("ab", find_unused_parameters=True)
    with Join([model]):
        for index, used in enumerate(["ab"] if rank.number == 0 else ["a", "a"]):
            model.zero_grad(set_to_none=True)
            model(used, 1.0).backward()
            rank.report("b after input %d" % index, grad_of(model, "b"))


_, second = run(body)
verdict(shown=second["b after input 1"] == [0.0], right=second["end"] == "ok" and second["b after input 1"] is None)
