"""DistributedDataParallel cannot be made for a module whose one parameter has a dimension of one element with another
stride than usual. Exit code 1: it cannot; 0: it can. Needs PyTorch alone."""

import os
import sys
import tempfile

import torch
import torch.distributed as dist

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
with tempfile.TemporaryDirectory() as folder:
    dist.init_process_group("gloo", init_method="file://%s/store" % folder, rank=0, world_size=1)
    module = torch.nn.Module()
    module.weight = torch.nn.Parameter(torch.ones(1, 2, 2, 2).permute(1, 0, 2, 3))
    print("PyTorch %s, strides %s" % (torch.__version__, module.weight.stride()))
    try:
        torch.nn.parallel.DistributedDataParallel(module)
    except RuntimeError as error:
        print(error)
        sys.exit(1)
