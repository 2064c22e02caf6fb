"""Puts lockstep.torch.DistributedDataParallel in the place of torch.nn.parallel.DistributedDataParallel."""

import torch
from torch.nn.parallel import distributed

TORCHS = distributed.DistributedDataParallel
is_in_force = False  # TORCHS.__new__ stays: once it was set, Python does not let object's take its place again


def make(cls, *arguments, **options):
    from lockstep.torch.distributed import DistributedDataParallel

    return object.__new__(DistributedDataParallel if is_in_force and cls is TORCHS else cls)


class Replacement:
    """What replace_ddp() returns: undo() ends it, as does the end of a `with`."""

    def undo(self):
        global is_in_force
        is_in_force = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.undo()


def replace_ddp():
    """From here on DistributedDataParallel(module, ...) makes a wrapper of Lockstep's, however and whenever its name was
    imported. Subclasses of DistributedDataParallel stay what they are."""
    global is_in_force
    TORCHS.__new__ = staticmethod(make)
    is_in_force = True
    return Replacement()


def in_use(module=None):
    """Whether replace_ddp() is in force; with a module, whether that is wrapped by Lockstep."""
    if module is not None:
        from lockstep.torch.distributed import DistributedDataParallel

        return isinstance(module, DistributedDataParallel)
    return is_in_force


assert issubclass(TORCHS, torch.nn.Module)
