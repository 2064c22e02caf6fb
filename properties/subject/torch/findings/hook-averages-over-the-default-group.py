"""Each rank has a model on a group of its own. The built-in hook, with the state None that its documentation
allows, averages over the default group (S4)."""

import torch.distributed as dist
from ranks import each, grad_of, model_of, run, verdict
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook


def body(rank):
    groups = [dist.new_group([number]) for number in range(2)]
    for name in ("with the hook", "without"):
        model = model_of(process_group=groups[rank.number])
        if name != "without":
            model.register_comm_hook(None, allreduce_hook)
        model("p", 1.0 + rank.number).backward()
        rank.report(name, grad_of(model))


seen = run(body)
verdict(
    shown=each(seen, "with the hook", [1.5]) and each(seen, "without", [1.0], [2.0]),
    right=each(seen, "with the hook", [1.0], [2.0]) and each(seen, "without", [1.0], [2.0]),
)
