"""A communication hook starts its all-reduce, and its continuation raises on rank 0 alone, in the second of three
passes. Rank 1 ends that pass without an error, and the third pass runs on both (F2, F3)."""

import torch.distributed as dist
from ranks import each, failed, grad_of, model_of, run, verdict


def body(rank):
    model = model_of()
    passes = []

    def hook(state, bucket):
        passes.append(None)
        fails = len(passes) == 2 and rank.number == 0

        def take(sums):
            if fails:
                raise RuntimeError("the hook raises")
            return sums.value()[0] / 2

        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(take)

    model.register_comm_hook(None, hook)
    for index in range(3):
        model.zero_grad(set_to_none=True)
        rank.attempt("pass %d" % index, lambda: model("p", 1.0 + 2 * rank.number).backward())
        rank.report("gradient %d" % index, grad_of(model))


first, second = seen = run(body)
verdict(
    shown="the hook raises" in first["pass 1"]
    and first["gradient 1"] != [2.0]
    and second["pass 1"] == "ok"
    and second["gradient 1"] == [2.0]
    and each(seen, "pass 2", "ok")
    and each(seen, "gradient 2", [2.0]),
    right=failed(seen, "pass 1") and failed(seen, "pass 2"),
)
