"""Static graph: the first backward fails on every rank, and the user gives the model a new process group
(_update_process_group, which resets the reducer) to go on with. The reducer still counts the failed pass as the first
one: the next pass raises "Your training graph has changed", and each one after it an error, too (F4, P11). In the other
modes it recovers. Expected: after a reset the next pass is the first one. A version without the call has nothing to
show."""

from ranks import DistributedDataParallel, dist, each, failed, grad_of, model_of, run, verdict

IS_THERE = hasattr(DistributedDataParallel, "_update_process_group")


def raises(gradient):
    raise RuntimeError("the user's own")


def body(rank):
    model = model_of("pq", static_graph=True)
    loss = model("pq", 10.0 * (rank.number + 1))
    hook = model.module.p.register_hook(raises)
    rank.attempt("first", loss.backward)
    hook.remove()
    model._update_process_group(dist.new_group())
    model.zero_grad()
    rank.attempt("second", lambda: model("pq", 10.0 * (rank.number + 1)).backward())
    rank.report("p", grad_of(model))


seen = run(body) if IS_THERE else []
verdict(
    shown=IS_THERE and failed(seen, "first", "own") and failed(seen, "second", "training graph has changed"),
    right=not IS_THERE or each(seen, "p", [15.0]),
)
