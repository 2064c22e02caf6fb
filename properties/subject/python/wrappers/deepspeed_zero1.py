"""DeepSpeed's ZeRO of stage 1: the state of the optimizer is sharded."""

from profiles import guess, kept_gradients, uneven_backwards
from zero import Zero


def wrap(module):
    return Zero(module, stage=1)


wrap.can = "frozen"
wrap.excludes = [kept_gradients]


@guess("several_backwards", "bits", excludes=[kept_gradients, uneven_backwards])
def two_losses_before_a_step(module):
    return Zero(module, stage=1)
