"""Dynamic mode; two forwards, of a and of b, then one backward of both. The search for unused parameters sees the
second forward alone, and the backward raises (P1)."""

from ranks import each, failed, model_of, run, verdict


def body(rank):
    model = model_of("ab", find_unused_parameters=True)
    rank.attempt("backward", (model("a", 1.0) + model("b", 1.0)).backward)


seen = run(body)
verdict(shown=failed(seen, "backward", "mark a variable ready only once"), right=each(seen, "backward", "ok"))
