"""Static mode: a Gloo group grows from two ranks to three in place (reconfigure); the two that were there keep their
model, and the new rank builds its own. In the next pass its first collective is not that of the others, and Gloo adds
what it is given: two ranks end with 8/3 and the new one with 8, without an error. The mean of three is 8. Expected:
the mean, or an error that says that the reducers differ (B4, F6). A version without reconfigure has nothing to
show."""

from ranks import CAN_RECONFIGURE, each, failed, grow_under_a_model, run, verdict

seen = run(lambda rank: grow_under_a_model(rank, static_graph=True), world=3) if CAN_RECONFIGURE else []
verdict(
    shown=CAN_RECONFIGURE and each(seen, "3 ranks, pass 0, mean", [2.667], [2.667], [8.0]),
    right=not CAN_RECONFIGURE
    or each(seen, "3 ranks, pass 2, mean", [8.0])
    or failed(seen, "3 ranks, pass 0", "differ"),
)
