"""Rank r sets its parameter to r, then pickles the DDP model and loads it: the loaded model trains with parameters
that differ (P17, B4, S3)."""

import pickle
from ranks import each, failed, grad_of, model_of, run, verdict


def body(rank):
    model = model_of()
    model.module.p.data.fill_(rank.number)
    loaded = []
    if rank.attempt("load", lambda: loaded.append(pickle.loads(pickle.dumps(model)))):
        rank.report("p", loaded[0].module.p.tolist())
        rank.attempt("backward", lambda: loaded[0]("p", 1.0 + rank.number).backward())
        rank.report("gradient", grad_of(loaded[0]))


seen = run(body)
verdict(
    shown=each(seen, "p", [0.0], [1.0]) and each(seen, "backward", "ok") and each(seen, "gradient", [1.5]),
    right=each(seen, "p", [0.0]) or failed(seen, "load"),
)
