#!/usr/bin/env bash
# counter-becomes-zero: JAX's helpers for several processes cut Python's and NumPy's numbers to 32 bits
#
# Guess: broadcast_one_to_all(step) gives the step of process 0 on all processes, and assert_equal(x) passes if all
# processes have the same x.
# Seen: values go through a device array, whose dtypes have 32 bits unless jax_enable_x64 is set. A step counter of
# 2**33 arrives as 0, 2**40 + 3 as 3, and process_allgather changes them likewise, without a warning. assert_equal
# compares the cut numbers with the whole ones, so that equal numbers fail: 0.1 is not equal to itself, and neither is
# 2**33, on every process; 0.5 is.
source "$(dirname -- "$0")/lib.sh"
install "${jax_0_10_2[@]}"
ranks 2 <<'PY'
import os

import jax
import numpy as np

jax.distributed.initialize(
    "127.0.0.1:" + os.environ["MASTER_PORT"], int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
)
from jax.experimental import multihost_utils

for value in (1000, 2**33, 2**40 + 3, np.int64(2**33), 1e-50):
    print("broadcast_one_to_all(%r): %s" % (value, multihost_utils.broadcast_one_to_all(value)))
print("process_allgather(2**33 + 7):", multihost_utils.process_allgather(2**33 + 7))
for value in (0.5, 0.1, 2**20, 2**33):
    try:
        multihost_utils.assert_equal(value)
        print("assert_equal(%r): passes" % value)
    except AssertionError:
        print("assert_equal(%r): raises" % value)
PY
expect <<'OUT'
all ranks: broadcast_one_to_all(1000): 1000
all ranks: broadcast_one_to_all(8589934592): 0
all ranks: broadcast_one_to_all(1099511627779): 3
all ranks: broadcast_one_to_all(np.int64(8589934592)): 0
all ranks: broadcast_one_to_all(1e-50): 0.0
all ranks: process_allgather(2**33 + 7): [7 7]
all ranks: assert_equal(0.5): passes
all ranks: assert_equal(0.1): raises
all ranks: assert_equal(1048576): passes
all ranks: assert_equal(8589934592): raises
OUT
