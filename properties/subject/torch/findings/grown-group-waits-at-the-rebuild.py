"""A Gloo group grows from two ranks to three in place (reconfigure), as fault-tolerant training does. The two that
were there keep their model; the new rank builds its own. The first pass is the mean of three; in the second one the
new rank rebuilds its buckets, which is a broadcast, and the others reduce a bucket: all wait for the timeout, and
their errors do not say why. Expected: the passes go on, or the first one says that the reducers differ (B4, F6). A
version without reconfigure has nothing to show."""

from ranks import CAN_RECONFIGURE, each, failed, grow_under_a_model, run, verdict

seen = run(grow_under_a_model, world=3) if CAN_RECONFIGURE else []
verdict(
    shown=CAN_RECONFIGURE
    and each(seen, "3 ranks, pass 0, mean", [8.0])
    and failed(seen, "3 ranks, pass 1", "Timed out"),
    right=not CAN_RECONFIGURE
    or each(seen, "3 ranks, pass 2, mean", [8.0])
    or failed(seen, "3 ranks, pass 0", "differ"),
)
