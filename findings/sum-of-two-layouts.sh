#!/usr/bin/env bash
# sum-of-two-layouts: mpi4py adds a matrix of one rank to the transposed one of another
#
# Guess: Allreduce of two 2x2 arrays adds equal indices, or raises if one array is row-major and the other column-major.
# Seen: what lies at the same place in memory is added, whatever index it has: both ranks have [[0, 1], [2, 3]], and the
# sum is [[0, 3], [3, 6]] in place of [[0, 2], [4, 6]]. Bcast gives a column-major receiver the transposed array. The
# lower-case allreduce, which pickles, is right. x.T and np.asfortranarray make such arrays.
source "$(dirname -- "$0")/lib.sh"
install "${mpich_5_0_2[@]}"
launcher=("${python%/*}/mpiexec" -n 2)
program <<'PY'
import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD


def show(name, array):
    every = world.gather(array.tolist())
    if world.rank == 0:
        print("%s: %s" % (name, every[0] if every[0] == every[1] else "%s on rank 0, %s on rank 1" % tuple(every)))


own = np.arange(4.0).reshape(2, 2)
own = np.asfortranarray(own) if world.rank == 1 else own
result = np.empty((2, 2))
world.Allreduce(own, result)
show("each rank has", own)
show("Allreduce", result)
show("allreduce", world.allreduce(own))
received = own if world.rank == 0 else np.zeros((2, 2), order="F")
world.Bcast(received)
show("Bcast", received)
PY
expect <<'OUT'
each rank has: [[0.0, 1.0], [2.0, 3.0]]
Allreduce: [[0.0, 3.0], [3.0, 6.0]]
allreduce: [[0.0, 2.0], [4.0, 6.0]]
Bcast: [[0.0, 1.0], [2.0, 3.0]] on rank 0, [[0.0, 2.0], [1.0, 3.0]] on rank 1
OUT
