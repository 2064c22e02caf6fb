"""Dynamic mode: no_sync uses b, zero_grad() takes its gradient, and the synced pass uses a alone. The backward
raises; where the gradients are zeroed instead, b counts as used (G6, P9)."""

from ranks import each, failed, grad_of, model_of, run, verdict


def body(rank):
    model = model_of("ab", find_unused_parameters=True)
    with model.no_sync():
        model("ab", 1.0).backward()
    model.zero_grad(set_to_none=True)
    rank.attempt("backward", lambda: model("a", 1.0).backward())
    rank.report("b", grad_of(model, "b"))


seen = run(body)
verdict(
    shown=failed(seen, "backward", "undefined, but still allreduced"),
    right=each(seen, "backward", "ok") and each(seen, "b", None),
)
