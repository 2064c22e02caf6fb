"""Lockstep generates training programs, runs them on the wrapper with ranks as processes, and compares every bit of every
gradient with its model. The fixture comes with the package lockstep-reducer."""

from wrapper import wrap


def test_gradients_are_the_average_of_all_ranks(lockstep_fuzz):
    # The seed makes every run the same: a failure has a cause in this repository.
    lockstep_fuzz(wrap, cases=200, seed=1)
