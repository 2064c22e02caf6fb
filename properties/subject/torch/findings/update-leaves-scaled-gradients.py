"""Gradients are views. A pass reaches q and not p, so that it cannot end, and the user gives it up by another process
group (_update_process_group), the way back after a failure. The gradient of q was halved when its bucket was ready,
and stays so: with the next pass added to it, the mean of 20 and 40 is 22.5. Without views it is 30. Expected: a pass
that is given up leaves whole gradients. A version without the call has nothing to show."""

from ranks import DistributedDataParallel, dist, each, grad_of, model_of, run, verdict

IS_THERE = hasattr(DistributedDataParallel, "_update_process_group")


def body(rank):
    for name in ("views", "copies"):
        model = model_of("pq", bucket_cap_mb=1e-5, gradient_as_bucket_view=name == "views")
        value = 10.0 * (rank.number + 1)
        model("q", value).backward()
        model._update_process_group(dist.new_group())
        model("pq", value).backward()
        rank.report(name, grad_of(model, "q"))


seen = run(body) if IS_THERE else []
verdict(
    shown=IS_THERE and each(seen, "copies", [30.0]) and each(seen, "views", [22.5]),
    right=not IS_THERE or (each(seen, "copies", [30.0]) and each(seen, "views", [30.0])),
)
