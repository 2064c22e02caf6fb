"""torchft's DistributedDataParallel with its Manager, as the example has it: each rank is a replica group of its own."""

from profiles import example, guess

managed = example("torchft_managed")


def wrap(module):
    return managed.wrap(module)


wrap.can = managed.wrap.can


@guess("dynamic", "definedness")
def ranks_use_other_parameters(module):
    """The reducer has a group of one rank, so that it takes what this rank does not use for what no rank uses."""
    return managed.wrap(module)
