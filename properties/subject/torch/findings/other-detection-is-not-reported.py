"""find_unused_parameters on rank 0 alone: one rank succeeds, the other fails when the first one is gone; neither
error names the option (B4)."""

from ranks import each, failed, model_of, run, verdict


def body(rank):
    models = []
    if rank.attempt("construction", lambda: models.append(model_of("ab", find_unused_parameters=rank.number == 0))):
        rank.attempt("pass", lambda: models[0]("ab", 1.0).backward())


seen = run(body)
verdict(
    shown=each(seen, "construction", "ok") and sorted(one["pass"] == "ok" for one in seen) == [False, True],
    right=failed(seen, "construction", "unused"),
)
