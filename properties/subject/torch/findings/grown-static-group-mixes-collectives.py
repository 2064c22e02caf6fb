"""Static mode: a Gloo group grows from two ranks to three in place (reconfigure); the two that were there keep their
model, and the new rank builds its own. In the next pass its first collective is not that of the others, and Gloo adds
what it is given: two ranks end with 8/3 and the new one with 8, without an error. The mean of three is 8. Expected:
the mean, or an error that says that the reducers differ (B4, F6). A version without reconfigure has nothing to
show."""

from ranks import CAN_RECONFIGURE, changeable_group, each, failed, grad_of, model_of, reconfigure, run, verdict


def body(rank):
    store = changeable_group(rank, 3)
    model = None
    for members in ([0, 1], [0, 1, 2]):
        if not reconfigure(rank, store, members):
            continue
        model = model or model_of("pq", init_sync=False, static_graph=True)
        for number in "012":
            name = "%d ranks, pass %s" % (len(members), number)
            model.zero_grad()
            if rank.attempt(name, lambda: model("pq", 8.0 * rank.number).backward()):
                rank.report(name + ", mean", [round(value, 3) for value in grad_of(model)])


seen = run(body, world=3) if CAN_RECONFIGURE else []
verdict(
    shown=CAN_RECONFIGURE and each(seen, "3 ranks, pass 0, mean", [2.667], [2.667], [8.0]),
    right=not CAN_RECONFIGURE
    or each(seen, "3 ranks, pass 2, mean", [8.0])
    or failed(seen, "3 ranks, pass 0", "differ"),
)
