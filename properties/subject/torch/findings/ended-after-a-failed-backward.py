"""Passes that the user ends by hand (require_manual_backward_finalization). A backward raises, and the user ends the
pass nevertheless. If a node raised before all buckets were ready, the end is an error, and so is each later forward. If
it raised after that, the end succeeds, the gradients are the means, and training goes on. (Where passes end by
themselves, each later forward is then an internal assertion.) A version without such passes has nothing to show."""

from ranks import DistributedDataParallel, each, failed, grad_of, model_of, run, torch, verdict

IS_THERE = hasattr(DistributedDataParallel, "finalize_backward")


def raises(gradient):
    raise ValueError("the node raises")


def body(rank):
    for when in ("early", "late"):
        model = model_of("ab")
        model.require_manual_backward_finalization = True
        oldest = torch.ones(1, requires_grad=True) * 1.0  # backward comes to the node of this one last
        (model.module.a if when == "early" else oldest).register_hook(raises)
        loss = model("ab", 10.0 * (rank.number + 1)) + oldest.sum()
        rank.attempt(when, loss.backward)
        rank.attempt(when + ", its end", model.finalize_backward)
        rank.report(when + ", mean", grad_of(model, "b"))
        rank.attempt(when + ", next", lambda: model("b", 1.0))


seen = run(body) if IS_THERE else []
all_failed = failed(seen, "early", "the node raises") and failed(seen, "late", "the node raises")
early = failed(seen, "early, its end", "before all DDP buckets were ready") and failed(seen, "early, next")
late = each(seen, "late, its end", "ok") and each(seen, "late, mean", [15.0]) and each(seen, "late, next", "ok")
verdict(shown=IS_THERE and all_failed and early and late, right=not IS_THERE or (all_failed and not early and not late))
