"""torchft's DistributedDataParallel with its Manager, as the example has it: each rank is a replica group of its own."""

from profiles import example, guess

managed = example("torchft_managed")


def wrap(module):
    return managed.wrap(module)


wrap.can = managed.wrap.can


def idle_rank(program, step):
    """Some rank has no gradient at all, and so begins none of the sums in which the others wait for it until their limit."""
    return len({bool(program.uses(rank, step)) for rank in range(program.world)}) > 1


@guess("dynamic", "definedness", excludes=[idle_rank])
def ranks_use_other_parameters(module):
    """The reducer has a group of one rank, so that it takes what this rank does not use for what no rank uses."""
    return managed.wrap(module)
