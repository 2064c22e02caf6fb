"""A communication hook runs a backward that reaches a parameter of the model, and waits for ever (S4)."""

import torch
import torch.distributed as dist
from ranks import TIMEOUT_SECONDS, each, model_of, run, verdict


def body(rank):
    model = model_of()

    def hook(state, bucket):
        with torch.enable_grad():
            (model.module.p * 2).sum().backward()
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda sums: sums.value()[0] / 2)

    model.register_comm_hook(None, hook)
    rank.attempt("backward", model("p", 1.0).backward)


seen = run(body, seconds=3 * TIMEOUT_SECONDS)
verdict(shown=each(seen, "end", "hangs") and each(seen, "backward", None), right=each(seen, "end", "ok"))
