"""Join with divide_by_initial_world_size=False; rank 0 has one input, rank 1 two. The built-in hook that averages
divides by all ranks; without a hook the mean is that of the ranks that still train (S2, S4)."""

from ranks import grad_of, model_of, run, verdict
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.algorithms.join import Join


def body(rank):
    for name in ("without", "with"):
        model = model_of()
        if name == "with":
            model.register_comm_hook(None, allreduce_hook)
        with Join([model], divide_by_initial_world_size=False):
            for _ in range(1 + rank.number):
                model.zero_grad(set_to_none=True)
                model("p", 8.0).backward()
        rank.report(name, grad_of(model))


_, second = run(body)
verdict(
    shown=second["without"] == [8.0] and second["with"] == [4.0], right=second["without"] == second["with"] == [8.0]
)
