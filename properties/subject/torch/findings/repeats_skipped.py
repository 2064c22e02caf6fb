"""skip_all_reduce_unused_params, and a hook that leaves its result in other memory than the bucket: a bucket that is
left out has the result of its last reduction written to its gradients once more. What a local pass accumulated is lost:
instead of it stands the mean of an earlier pass, whose gradient was set to None since (G5, P9). Expected: what is
skipped is left alone, or reduced. A version without the option has nothing to show."""

from ranks import dist, each, grad_of, model_of, run, takes, verdict

OPTION = "skip_all_reduce_unused_params"


def average(state, bucket):
    copy = bucket.buffer().clone().div_(2)
    return dist.all_reduce(copy, async_op=True).get_future().then(lambda future: future.value()[0])


def body(rank):
    options = {OPTION: True} if takes(OPTION) else {}
    model = model_of("pq", find_unused_parameters=True, bucket_cap_mb=1e-6, **options)
    model.register_comm_hook(None, average)
    model("pq", 100.0 * (rank.number + 1)).backward()  # the means are 150
    model.zero_grad(set_to_none=True)
    with model.no_sync():
        model("q", 10.0 * (rank.number + 1)).backward()
    if options:
        model("p", 1.0).backward()
    rank.report("q", grad_of(model, "q"))


seen = run(body)
verdict(shown=each(seen, "q", [150.0]), right=each(seen, "q", [10.0], [20.0]) or each(seen, "q", [15.0]))
