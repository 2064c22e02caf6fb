"""Gradients as bucket views; on rank 0 the user swaps the gradients of a and b. The next pass averages a with b
(B7, G1)."""

from ranks import each, grad_of, model_of, run, verdict


def body(rank):
    for views in (False, True):
        model = model_of("ab", 2, gradient_as_bucket_view=views)
        for factor in (0.0, 1.0, 2.0):  # nothing, as buckets are rebuilt then; 1 and 10; 2 and 20
            (model("a", factor) + model.module("b", 10 * factor)).backward()
            if rank.number == 0 and factor == 1.0:
                model.module.a.grad, model.module.b.grad = model.module.b.grad, model.module.a.grad
        rank.report("a and b, with views" if views else "a and b", grad_of(model, "a") + grad_of(model, "b"))


seen = run(body)
right = [7.5, 7.5, 25.5, 25.5]
verdict(
    shown=each(seen, "a and b", right) and all(one["a and b, with views"] not in (None, right) for one in seen),
    right=each(seen, "a and b", right) and each(seen, "a and b, with views", right),
)
