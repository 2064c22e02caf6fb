"""Dynamic mode with gradients as bucket views: no rank uses a, and the gradient that it holds is averaged
nevertheless (G5); without views it is not."""

from ranks import each, grad_of, model_of, run, verdict


def body(rank):
    for views in (False, True):
        model = model_of("ab", find_unused_parameters=True, gradient_as_bucket_view=views)
        model("ab", 1.0).backward()
        model.module.a.grad += 3.0 + 2 * rank.number
        model("b", 1.0).backward()
        rank.report("a, with views" if views else "a", grad_of(model, "a"))


seen = run(body)
verdict(
    shown=each(seen, "a", [4.0], [6.0]) and each(seen, "a, with views", [5.0]),
    right=each(seen, "a", [4.0], [6.0]) and each(seen, "a, with views", [4.0], [6.0]),
)
