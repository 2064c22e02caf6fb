"""Static graph; the output of a synced forward is dropped, then one backward of two forwards under no_sync. It ends
the first pass twice, the second time in an internal assertion (P9, P11); or it is averaged (stays_armed)."""

from ranks import each, failed, grad_of, model_of, run, verdict


def body(rank):
    model = model_of(static_graph=True)
    model("p", 1.0)
    with model.no_sync():
        rank.attempt("local backward", (model("p", 1.0 + rank.number) + model("p", 2.0)).backward)
    rank.report("p", grad_of(model))


seen = run(body)
averaged = each(seen, "local backward", "ok") and each(seen, "p", [3.5])
verdict(
    shown=any("INTERNAL ASSERT FAILED" in (one["local backward"] or "") for one in seen) or averaged,
    right=each(seen, "local backward", "ok") and each(seen, "p", [3.0], [4.0]),
)
