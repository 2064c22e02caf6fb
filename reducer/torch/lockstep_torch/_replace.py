"""Puts lockstep.torch.DistributedDataParallel in the place of torch.nn.parallel.DistributedDataParallel."""

import torch
from torch.nn.parallel import distributed

TORCHS = distributed.DistributedDataParallel


def make(cls, *arguments, **options):
    from lockstep.torch.distributed import DistributedDataParallel

    return object.__new__(DistributedDataParallel if cls is TORCHS else cls)


class Replacement:
    """What replace_ddp() returns: undo() ends it, as does the end of a `with`."""

    def undo(self):
        if in_use():
            del TORCHS.__new__

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.undo()


def replace_ddp():
    """From here on DistributedDataParallel(module, ...) makes a wrapper of Lockstep's, however and whenever its name was
    imported. Subclasses of DistributedDataParallel stay what they are."""
    TORCHS.__new__ = staticmethod(make)
    return Replacement()


def in_use(module=None):
    """Whether replace_ddp() is in force; with a module, whether that is wrapped by Lockstep."""
    if module is not None:
        from lockstep.torch.distributed import DistributedDataParallel

        return isinstance(module, DistributedDataParallel)
    return "__new__" in vars(TORCHS)


assert issubclass(TORCHS, torch.nn.Module)
