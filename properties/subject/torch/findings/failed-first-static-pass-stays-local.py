"""Static graph. A node raises in the very first backward, on every rank. Each later pass ends without an error, and the
ranks keep their own gradients: 10 and 20, where 15 is the mean. Nothing is reduced any more. Expected: no collective
was launched, so the next pass is averaged (P12), or an error."""

from ranks import each, failed, grad_of, model_of, run, verdict


def raises(gradient):
    raise ValueError("the node raises")


def body(rank):
    model = model_of("ab", static_graph=True)
    loss = model("ab", 10.0 * (rank.number + 1))
    hook = model.module.a.register_hook(raises)
    rank.attempt("first", loss.backward)
    hook.remove()
    for name in ("second", "third", "fourth"):
        model.zero_grad()
        if rank.attempt(name, lambda: model("ab", 10.0 * (rank.number + 1)).backward()):
            rank.report(name + " gradients", [grad_of(model, "a"), grad_of(model, "b")])


seen = run(body)
first_failed = failed(seen, "first", "the node raises")
verdict(
    shown=first_failed
    and all(each(seen, name + " gradients", [[10.0]] * 2, [[20.0]] * 2) for name in ("second", "third", "fourth")),
    right=first_failed and (each(seen, "fourth gradients", [[15.0]] * 2) or failed(seen, "second")),
)
