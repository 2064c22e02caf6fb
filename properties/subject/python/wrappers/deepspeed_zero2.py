"""DeepSpeed's ZeRO of stage 2: gradients and the state of the optimizer are sharded."""

from profiles import guess, kept_gradients
from zero import Zero


def wrap(module):
    return Zero(module, stage=2)


wrap.can = "frozen"
wrap.excludes = [kept_gradients]


@guess("several_backwards", "bits", excludes=[kept_gradients])
def two_losses_before_a_step(module):
    return Zero(module, stage=2)
