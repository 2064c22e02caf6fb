"""A bucket for each of three parameters; gradients become ready last parameter first. If rank 0, which decides the
order, has no inputs under join, the rebuilt buckets have the order of the parameters (B2, S2)."""

import torch
import torch.distributed as dist
from ranks import DistributedDataParallel, Model, run, verdict
from torch.distributed.algorithms.join import Join


def body(rank):
    dist._DEFAULT_FIRST_BUCKET_BYTES = 4
    for inputs in (0, 1):
        module = Model(a=torch.zeros(1), b=torch.zeros(2), c=torch.zeros(3))
        model = DistributedDataParallel(module, bucket_cap_mb=4 / 1024 / 1024)
        with Join([model]):
            for _ in range(inputs if rank.number == 0 else 2):
                model("abc", 1.0).backward()
        rank.report(
            "%d inputs" % inputs, [one.buffer().numel() for one in model.reducer._get_zeros_like_grad_buckets()]
        )


_, second = run(body)
verdict(
    shown=second["0 inputs"] == [1, 2, 3] and second["1 inputs"] == [3, 2, 1], right=second["0 inputs"] == [3, 2, 1]
)
