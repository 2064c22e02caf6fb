"""What a test with a tolerance sees of a wrapper that is wrong: two ranks train ten steps, one process trains the same batches
whole, and the parameters have to be close. Exit code 0: they are."""

from ranks import on_ranks, train

import torch
from faulty_wrappers import skips_none


def train_wrapped():
    return train(skips_none, 10)


def train_alone():
    return train(lambda module: module, 10)


if __name__ == "__main__":
    for ours, theirs in zip(on_ranks(2, train_wrapped), on_ranks(1, train_alone)):
        torch.testing.assert_close(ours, theirs)
    print("ok: two ranks with the wrapper come to what one process comes to")
