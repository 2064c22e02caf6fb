"""DistributedDataParallel of PyTorch 1.13 cannot be made for a module with a parameter of shape (0, 1), which has no
elements. Exit code 1: it cannot; 0: it can. Needs PyTorch alone."""

import os
import sys
import tempfile

import torch
import torch.distributed as dist

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
with tempfile.TemporaryDirectory() as folder:
    dist.init_process_group("gloo", init_method="file://%s/store" % folder, rank=0, world_size=1)
    module = torch.nn.Module()
    module.weight = torch.nn.Parameter(torch.ones(0, 1))
    print("PyTorch %s, shape %s" % (torch.__version__, tuple(module.weight.shape)))
    try:
        torch.nn.parallel.DistributedDataParallel(module)
    except RuntimeError as error:
        print(error)
        sys.exit(1)
