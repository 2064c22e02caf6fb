#!/usr/bin/env bash
# replicated-without-a-check: two ways to a replicated JAX array, of which one takes a different value on each process
#
# Guess: an array with a replicated sharding has one value; if the processes bring different ones, JAX raises in each way
# of making it, or takes one of them.
# Seen: device_put compares the processes' values and raises. make_array_from_callback and
# make_array_from_process_local_data do not: the array is called fully replicated, and has the process's own value on
# each. Sums of it come out different on the processes, and two models that were started from it drift apart.
source "$(dirname -- "$0")/lib.sh"
install "${jax_0_10_2[@]}"
ranks 2 <<'PY'
import os

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

rank = int(os.environ["RANK"])
jax.distributed.initialize("127.0.0.1:" + os.environ["MASTER_PORT"], int(os.environ["WORLD_SIZE"]), rank)
replicated = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), PartitionSpec())
own = np.full(2, rank, np.float32)
try:
    jax.device_put(own, replicated)
    print("device_put: passes")
except AssertionError:
    print("device_put: raises")
for name, array in (
    ("make_array_from_callback", jax.make_array_from_callback((2,), replicated, lambda index: own[index])),
    ("make_array_from_process_local_data", jax.make_array_from_process_local_data(replicated, own)),
):
    print("%s: fully replicated %s, sum %g" % (name, array.is_fully_replicated, array.sum()))
PY
expect <<'OUT'
all ranks: device_put: raises
rank 0: make_array_from_callback: fully replicated True, sum 0
rank 1: make_array_from_callback: fully replicated True, sum 2
rank 0: make_array_from_process_local_data: fully replicated True, sum 0
rank 1: make_array_from_process_local_data: fully replicated True, sum 2
OUT
