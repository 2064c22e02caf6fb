"""Static graph, parameters of two dtypes: before the buckets are rebuilt, both buckets that a hook sees have index
0, and none is the last. Their gradients are row-major where the parameter, and its gradient later, are not (S4)."""

import torch
import torch.distributed as dist
from ranks import DistributedDataParallel, Model, run, verdict


def body(rank):
    module = Model(a=torch.zeros(2), b=torch.zeros(2, 3).t().double())
    model = DistributedDataParallel(module, static_graph=True)
    noted = []

    def hook(state, bucket):
        noted.append((bucket.index(), bucket.is_last(), [tuple(one.stride()) for one in bucket.gradients()]))
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda sums: sums.value()[0] / 2)

    model.register_comm_hook(None, hook)
    for index in range(2):
        model("ab", 1.0).backward()
        rank.report("pass %d (index, is last, strides)" % index, list(noted))
        noted.clear()
    rank.report("strides of b and its gradient", [tuple(module.b.stride()), tuple(module.b.grad.stride())])


seen = run(body)[0]
first, second = (seen["pass %d (index, is last, strides)" % index] for index in range(2))
strides = [one for _, _, every in first + second for one in every]
verdict(
    shown=[one[:2] for one in first] == [(0, False)] * 2
    and (2, 1) in strides
    and (1, 3) not in strides
    and seen["strides of b and its gradient"] == [(1, 3), (1, 3)],
    right=[one[:2] for one in first] == [(0, False), (1, True)] and (1, 3) in strides,
)
