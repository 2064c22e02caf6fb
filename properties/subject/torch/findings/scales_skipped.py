"""skip_all_reduce_unused_params, bucket views: a gradient that no rank uses any more is halved in each pass, and summed
in none: 6, 3, 1.5. Without views it stays as it is, unless a local pass used it: then each rank keeps a half of its
own (G5, P9). Expected: what is skipped is left alone, or reduced. A version without the option has nothing to show."""

from ranks import each, grad_of, model_of, run, takes, verdict

OPTION = "skip_all_reduce_unused_params"


def body(rank):
    options = {OPTION: True} if takes(OPTION) else {}
    for views in (True, False) if options else (True,):
        model = model_of(
            "pq", find_unused_parameters=True, bucket_cap_mb=1e-6, gradient_as_bucket_view=views, **options
        )
        model("pq", 4.0 * (rank.number + 1)).backward()  # the means are 6
        if not views:
            with model.no_sync():
                model("q", 10.0 * (rank.number + 1)).backward()
        for _ in range(2):
            model("p", 1.0).backward()
        rank.report("q with views" if views else "q after a local pass", grad_of(model, "q"))


seen = run(body)
verdict(
    shown=each(seen, "q with views", [1.5]) and [one["q after a local pass"] for one in seen] == [[8.0], [13.0]],
    right=each(seen, "q with views", [6.0]) and (each(seen, "q after a local pass", [21.0]) or not takes(OPTION)),
)
