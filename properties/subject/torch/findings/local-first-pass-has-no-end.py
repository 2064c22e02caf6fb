"""Static graph, passes that the user ends by hand (require_manual_backward_finalization). The first backward of all
runs under no_sync, as with gradient accumulation. It takes itself for the first pass and starts all collectives,
without an error. The call that would end it is an internal assertion, and the next forward an error, as that pass has
not ended (P9, P11). Expected: a local pass. A version without such passes has nothing to show."""

from ranks import DistributedDataParallel, each, failed, grad_of, model_of, run, verdict

IS_THERE = hasattr(DistributedDataParallel, "finalize_backward")


def body(rank):
    model = model_of(static_graph=True)
    model.require_manual_backward_finalization = True
    with model.no_sync():
        loss = model("p", 10.0 * (rank.number + 1))
        rank.attempt("local", loss.backward)
    rank.attempt("its end", model.finalize_backward)
    if rank.attempt("next", lambda: model("p", 10.0 * (rank.number + 1)).backward()):
        model.finalize_backward()
    rank.report("p", grad_of(model))


seen = run(body) if IS_THERE else []
verdict(
    shown=IS_THERE
    and each(seen, "local", "ok")
    and failed(seen, "its end", "INTERNAL ASSERT FAILED")
    and failed(seen, "next", "finished reduction in the prior iteration"),
    right=not IS_THERE or (each(seen, "local", "ok") and each(seen, "p", [30.0])),
)
