"""What static types see: `pip install spmd_types torch`, on one process. The first program uses a sum of which each rank still has
a part, and is refused. The second one is what a wrapper does that forgets to divide: its types are right, and its values wrong."""

import torch
import torch.distributed as dist
import spmd_types as spmd
import spmd_types.checker
from torch.distributed.device_mesh import init_device_mesh

dist.init_process_group(backend="fake", rank=0, world_size=2)
mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
dp = mesh.get_group("dp")


def forgets_the_sum():
    part = torch.randn(4)
    spmd.assert_type(part, {dp: spmd.P})
    return torch.relu(part)


def forgets_to_divide():
    gradient = torch.randn(4)
    spmd.assert_type(gradient, {dp: spmd.P})
    return spmd.all_reduce(gradient, dp, src=spmd.P, dst=spmd.R)


for program in (forgets_the_sum, forgets_to_divide):
    with spmd.set_current_mesh(mesh), spmd.checker.typecheck():
        try:
            program()
            print(program.__name__ + ": the types are right")
        except Exception as error:
            print("%s: %s: %s" % (program.__name__, type(error).__name__, str(error).splitlines()[0]))
dist.destroy_process_group()
