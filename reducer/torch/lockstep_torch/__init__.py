"""Lockstep's reducer for PyTorch: a DistributedDataParallel in the place of torch.nn.parallel's.

    import lockstep.torch

    torch.distributed.init_process_group("gloo")
    model = lockstep.torch.DistributedDataParallel(model)

or, where a library makes the wrapper, before it does:

    lockstep.torch.replace_ddp()
"""

from lockstep.torch._load import extension
from lockstep.torch._replace import in_use, replace_ddp
from lockstep.torch.distributed import DistributedDataParallel

LockstepError = extension.LockstepError

__all__ = ["DistributedDataParallel", "LockstepError", "in_use", "replace_ddp"]
