"""Three ranks train; one is lost in a pass, and the pass of the other two fails at the timeout. They shrink their
Gloo group to two ranks in place (reconfigure), and train on: the next backward ends without an error, and divides the
sum of two ranks by three (8/3). The one after it gives 4, the mean of two. Expected: 4, or an error (G2, P12). A
version without reconfigure has nothing to show."""

import os
import time

from ranks import CAN_RECONFIGURE, TIMEOUT_SECONDS, changeable_group, each, grad_of, model_of, reconfigure, run, verdict


def body(rank):
    store = changeable_group(rank, 3)
    reconfigure(rank, store, [0, 1, 2])
    model = model_of("pq", init_sync=False)
    train = lambda: model("pq", 8.0 * rank.number).backward()
    train()
    train()  # with rebuilt buckets
    if rank.number == 2:
        time.sleep(TIMEOUT_SECONDS + 2)
        os._exit(0)
    rank.attempt("a rank is lost", train)
    reconfigure(rank, store, [0, 1])
    for name in ("first", "second"):
        model.zero_grad()
        if rank.attempt(name, train):
            rank.report(name + " mean", [round(value, 3) for value in grad_of(model)])


seen = run(body, world=3)[:2] if CAN_RECONFIGURE else []
verdict(
    shown=CAN_RECONFIGURE and each(seen, "first mean", [2.667]) and each(seen, "second mean", [4.0]),
    right=not CAN_RECONFIGURE or each(seen, "first mean", [4.0]) or seen[0]["first"] != "ok",
)
