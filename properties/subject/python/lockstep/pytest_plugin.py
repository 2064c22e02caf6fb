"""A fixture for pytest, which finds it by itself once the package is installed:

    def test_my_wrapper(lockstep_fuzz):
        lockstep_fuzz(wrap, cases=200, seed=1)
"""

import functools

import pytest

import lockstep


@pytest.fixture
def lockstep_fuzz(tmp_path):
    """lockstep.fuzz(), which keeps failing cases in the folder of the test."""
    return functools.partial(lockstep.fuzz, out=tmp_path)
