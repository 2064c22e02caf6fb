"""A built-in communication hook (_register_builtin_comm_hook), then another process group (_update_process_group), in
which each rank is alone. The hook goes on with the former group: each rank has 15, the mean over both. Without a hook
it has its own gradient, 10 and 20. A user can register no other hook (S4). Expected: the hook of the reducer's own
goes with the reducer to its new group. A version without the call has nothing to show."""

from ranks import DistributedDataParallel, dist, each, grad_of, model_of, run, verdict

IS_THERE = hasattr(DistributedDataParallel, "_update_process_group")


def body(rank):
    alone = [dist.new_group([number]) for number in (0, 1)][rank.number]
    for name in ("hook", "none"):
        model = model_of()
        if name == "hook":
            model._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
        model._update_process_group(alone)
        model("p", 10.0 * (rank.number + 1)).backward()
        rank.report(name, grad_of(model))


seen = run(body) if IS_THERE else []
own = ([10.0], [20.0])
verdict(
    shown=IS_THERE and each(seen, "none", *own) and each(seen, "hook", [15.0]),
    right=not IS_THERE or each(seen, "hook", *own),
)
