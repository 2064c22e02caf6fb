"""`replicate` of replicate_with_fsdp, data parallelism by the code of FSDP2. Ranks that begin with other weights keep
them: they are neither made equal nor compared, and after a step with the mean gradient they are as far apart as before.
Expected: all ranks have the weights of rank 0, as DistributedDataParallel gives them."""

import torch
from ranks import Model, dist, each, not_there, run, verdict

try:
    from torch.distributed._composable import replicate_with_fsdp
    from torch.distributed.device_mesh import init_device_mesh
except ImportError:
    not_there("replicate_with_fsdp")


def replicated(module):
    if hasattr(replicate_with_fsdp, "replicate_impl"):  # up to some version before 2.14
        mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicate", "shard"))
        return replicate_with_fsdp.replicate(module, device_mesh=mesh)
    return replicate_with_fsdp.replicate(module, mesh=init_device_mesh("cpu", (2,)))


def body(rank):
    model = replicated(Model(p=torch.full((1,), 10.0 * rank.number)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model("p", 1.0 + 2 * rank.number).backward()
    optimizer.step()
    rank.report("weight", model.p.full_tensor().tolist())
    dist.barrier()


seen = run(body)
verdict(shown=each(seen, "weight", [-2.0], [8.0]), right=each(seen, "weight", [-2.0]))
