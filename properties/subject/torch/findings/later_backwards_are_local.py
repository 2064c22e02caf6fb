"""A second backward of one retained graph stays local, without an error (P7)."""

from ranks import each, failed, grad_of, model_of, run, verdict


def body(rank):
    model = model_of()
    loss = model("p", 1.0 + 2 * rank.number)
    loss.backward(retain_graph=True)
    rank.attempt("second backward", loss.backward)
    rank.report("p", grad_of(model))


seen = run(body)
verdict(
    shown=each(seen, "second backward", "ok") and each(seen, "p", [3.0], [5.0]),  # 2 + 1, 2 + 3
    right=failed(seen, "second backward"),
)
