"""Static graph; two forwards, then one backward of both, in the very first pass. The backward says that the graph
has changed, although there was no pass before (P1, P11)."""

from ranks import each, failed, grad_of, model_of, run, verdict


def body(rank):
    model = model_of(static_graph=True)
    rank.attempt("backward", (model("p", 1.0 + rank.number) + model("p", 2.0)).backward)
    rank.report("p", grad_of(model))


seen = run(body)
verdict(
    shown=failed(seen, "backward", "has changed in this iteration"),
    right=each(seen, "backward", "ok") and each(seen, "p", [3.5]),
)
