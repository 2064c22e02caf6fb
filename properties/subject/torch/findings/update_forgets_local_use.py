"""Dynamic mode: all ranks use q under no_sync, give the model another process group (_update_process_group, which
resets the reducer), and use p alone in the synced pass after it. q is not reduced: each rank keeps its own gradient,
without an error. Without the call between the passes its mean is 15 (P9). Expected: what was accumulated is reduced by
the next synced pass, or the call says that it is lost. A version without the call has nothing to show."""

from ranks import DistributedDataParallel, dist, each, grad_of, model_of, run, verdict

IS_THERE = hasattr(DistributedDataParallel, "_update_process_group")


def body(rank):
    for name in ("updated", "left alone"):
        model = model_of("pq", find_unused_parameters=True)
        model("pq", 1.0).backward()
        model.zero_grad()
        with model.no_sync():
            model("q", 10.0 * (rank.number + 1)).backward()
        if name == "updated":
            model._update_process_group(dist.new_group())
        model("p", 1.0).backward()
        rank.report(name, grad_of(model, "q"))


seen = run(body) if IS_THERE else []
verdict(
    shown=IS_THERE and each(seen, "updated", [10.0], [20.0]) and each(seen, "left alone", [15.0]),
    right=not IS_THERE or each(seen, "updated", [15.0]),
)
