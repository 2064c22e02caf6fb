"""A pipeline's order: three forwards, of which the last is synced, then three backwards in the order of the
forwards. The first of them is averaged, and what the others add stays local (P1; torchrec#4758)."""

from ranks import each, grad_of, model_of, run, verdict


def body(rank):
    model = model_of()
    with model.no_sync():
        losses = [model("p", factor * (1.0 + rank.number)) for factor in (1.0, 10.0)]
    losses.append(model("p", 100.0 * (1 + rank.number)))
    for loss in losses:
        loss.backward()
    rank.report("p", grad_of(model))


seen = run(body)
verdict(shown=each(seen, "p", [111.5], [221.5]), right=each(seen, "p", [166.5]))
