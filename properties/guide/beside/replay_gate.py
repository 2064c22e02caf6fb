"""What a replay gate sees of a wrapper that is wrong: the same training runs twice, and every bit of the parameters has to be the
same. Exit code 0: it is. With --dropout the model draws without a seed, and the gate is red."""

import sys

from ranks import on_ranks, train

import torch
from faulty_wrappers import does_not_divide


def train_wrapped():
    return train(does_not_divide, 10)


def train_with_free_dropout():
    return train(does_not_divide, 10, has_free_dropout=True)


if __name__ == "__main__":
    job = train_with_free_dropout if "--dropout" in sys.argv else train_wrapped
    first, second = on_ranks(2, job), on_ranks(2, job)
    if not all(torch.equal(one, other) for one, other in zip(first, second)):
        sys.exit("the two runs differ")
    print("ok: both runs come to the same bits")
