"""Static graph: after the first synced pass a backward under no_sync starts the collectives of the first pass
again, and ends in an internal assertion (P9, P11)."""

from ranks import each, failed, grad_of, model_of, run, verdict


def body(rank):
    model = model_of(static_graph=True)
    model("p", 1.0 + rank.number).backward()
    with model.no_sync():
        rank.attempt("local backward", model("p", 10.0 + 10 * rank.number).backward)
    rank.report("p", grad_of(model))


seen = run(body)
verdict(
    shown=failed(seen, "local backward", "INTERNAL ASSERT FAILED"),
    right=each(seen, "local backward", "ok") and each(seen, "p", [11.5], [21.5]),
)
