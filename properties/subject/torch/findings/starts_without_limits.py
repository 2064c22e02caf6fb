"""Plain mode: the first pass has one bucket, whatever the limits are; the second has the buckets of the limits
(B1). With unused detection the first pass has these, too."""

import torch
import torch.distributed as dist
from ranks import model_of, run, verdict


def body(rank):
    dist._DEFAULT_FIRST_BUCKET_BYTES = 4
    for detection in (False, True):
        model = model_of("abc", bucket_cap_mb=4 / 1024 / 1024, find_unused_parameters=detection)
        counts = []

        def hook(state, bucket, counts=counts):
            counts[-1] += 1
            return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda sums: sums.value()[0] / 2)

        model.register_comm_hook(None, hook)
        for _ in range(2):
            counts.append(0)
            model("abc", 1.0).backward()
        rank.report("buckets, with detection" if detection else "buckets", counts)


seen = run(body)[0]
verdict(
    shown=seen["buckets"] == [1, 3] and seen["buckets, with detection"] == [3, 3],
    right=seen["buckets"] == [3, 3] and seen["buckets, with detection"] == [3, 3],
)
