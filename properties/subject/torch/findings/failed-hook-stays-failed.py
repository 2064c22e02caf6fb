"""A communication hook raises on rank 0, before it starts a collective. Every later forward of rank 0 raises an
internal assertion that asks for a bug report; rank 1 has a broken connection (P12)."""

import torch.distributed as dist
from ranks import model_of, run, verdict


def body(rank):
    model = model_of()
    passes = []

    def hook(state, bucket):
        passes.append(None)
        if len(passes) == 1 and rank.number == 0:
            raise RuntimeError("the hook raises")
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda sums: sums.value()[0] / 2)

    model.register_comm_hook(None, hook)
    for index in range(3):
        if not rank.attempt("pass %d" % index, lambda: model("p", 1.0).backward()) and rank.number == 1:
            break


first, second = run(body)
later = [first["pass %d" % index] or "" for index in (1, 2)]
verdict(
    shown=first["pass 0"].endswith("the hook raises")
    and all("please report a bug to PyTorch" in one for one in later)
    and second["pass 0"] != "ok",
    right=all("the hook raises" in one for one in later) or later == ["ok", "ok"],
)
