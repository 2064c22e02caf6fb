"""Plain mode; no rank uses b. The backward ends without an error, with local gradients, and the next forward raises
(P5)."""

from ranks import each, failed, grad_of, model_of, run, verdict


def body(rank):
    model = model_of("ab")
    rank.attempt("backward", model("a", 1.0 + rank.number).backward)
    rank.report("a", grad_of(model, "a"))
    rank.attempt("next forward", lambda: model("a", 1.0))


seen = run(body)
verdict(
    shown=each(seen, "backward", "ok") and each(seen, "a", [1.0], [2.0]) and failed(seen, "next forward", "not used"),
    right=failed(seen, "backward"),
)
