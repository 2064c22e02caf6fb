"""A bucket for each of three parameters; gradients become ready in the order of the parameters. In plain mode the
buckets of the second pass have that order, with unused detection they have the reversed one (B2)."""

import torch
import torch.distributed as dist
from ranks import DistributedDataParallel, Model, run, verdict


def body(rank):
    dist._DEFAULT_FIRST_BUCKET_BYTES = 4
    for detection in (False, True):
        module = Model(c=torch.zeros(3), b=torch.zeros(2), a=torch.zeros(1))
        model = DistributedDataParallel(module, bucket_cap_mb=4 / 1024 / 1024, find_unused_parameters=detection)
        sizes = []

        def hook(state, bucket, sizes=sizes):
            sizes[-1].append(bucket.buffer().numel())
            return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda sums: sums.value()[0] / 2)

        model.register_comm_hook(None, hook)
        for _ in range(2):
            sizes.append([])
            model("abc", 1.0).backward()
        rank.report("with detection" if detection else "plain", sizes[1])


seen = run(body)[0]
verdict(
    shown=seen["plain"] == [3, 2, 1] and seen["with detection"] == [1, 2, 3],
    right=seen["plain"] == seen["with detection"],
)
