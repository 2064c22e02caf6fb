"""DeepSpeed's ZeRO of stage 2: gradients and the state of the optimizer are sharded."""

from profiles import guess, kept_gradients, uneven_backwards, uneven_order
from zero import Zero


def wrap(module):
    return Zero(module, stage=2)


wrap.can = "frozen"
wrap.excludes = [kept_gradients, uneven_order]


@guess("several_backwards", "bits", excludes=[kept_gradients, uneven_backwards, uneven_order])
def two_losses_before_a_step(module):
    return Zero(module, stage=2)


@guess("", "bits", excludes=[kept_gradients])
def ranks_use_other_orders(module):
    """A bucket holds gradients in the order in which they came, and is added to that of a rank with another order."""
    return Zero(module, stage=2)
