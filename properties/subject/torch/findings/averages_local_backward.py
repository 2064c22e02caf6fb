"""A synced forward, then one under no_sync. The backward of the local output, which comes first, is averaged; that
of the synced output stays local (P1)."""

from ranks import each, grad_of, model_of, run, verdict


def body(rank):
    model = model_of()
    synced = model("p", 1.0 + rank.number)
    with model.no_sync():
        local = model("p", 10.0 + 10 * rank.number)
    local.backward()
    rank.report("after the local backward", grad_of(model))
    synced.backward()
    rank.report("after the synced backward", grad_of(model))


seen = run(body)
verdict(
    shown=each(seen, "after the local backward", [15.0]) and each(seen, "after the synced backward", [16.0], [17.0]),
    right=each(seen, "after the local backward", [10.0], [20.0]) and each(seen, "after the synced backward", [16.5]),
)
