"""A hook returns the sum and as many elements again, or the sum in float64: PyTorch takes the first elements, or
converts, where the documentation says that the result has the shape of the bucket (S4)."""

import torch
import torch.distributed as dist
from ranks import each, failed, grad_of, model_of, run, verdict


def body(rank):
    for name in ("long", "double"):
        model = model_of(size=2)

        def hook(_, bucket, name=name):
            def change(future):
                total = future.value()[0]
                return torch.cat([total, total]) if name == "long" else total.double()

            return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(change)

        model.register_comm_hook(None, hook)
        rank.attempt(name + " backward", lambda: model("p", 1.0 + rank.number).backward())
        rank.report(name, grad_of(model))


seen = run(body)
verdict(
    shown=each(seen, "long", [3.0, 3.0]) and each(seen, "double", [3.0, 3.0]),
    right=failed(seen, "long backward") and failed(seen, "double backward"),
)
