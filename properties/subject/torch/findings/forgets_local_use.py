"""Dynamic mode: what both ranks used under no_sync alone is not reduced by the next synced pass (P9)."""

from ranks import each, grad_of, model_of, run, verdict


def body(rank):
    model = model_of("ab", find_unused_parameters=True)
    with model.no_sync():
        model("a", 10.0 + 6 * rank.number).backward()
    model("b", 1.0).backward()
    rank.report("a", grad_of(model, "a"))


seen = run(body)
verdict(shown=each(seen, "a", [10.0], [16.0]), right=each(seen, "a", [13.0]))
