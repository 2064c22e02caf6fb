"""The output of a synced forward is dropped; then a backward under no_sync is averaged (P1, P2)."""

from ranks import each, grad_of, model_of, run, verdict


def body(rank):
    model = model_of()
    model("p", 1.0)
    with model.no_sync():
        model("p", 1.0 + rank.number).backward()
    rank.report("p", grad_of(model))


seen = run(body)
verdict(shown=each(seen, "p", [1.5]), right=each(seen, "p", [1.0], [2.0]))
