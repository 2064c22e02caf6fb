#!/usr/bin/env bash
# fifth-sum-is-another: MPICH's fifth all-reduce on a communicator adds in another order than the four before
#
# Guess: MPI_Allreduce of the same numbers on the same communicator gives the same sum each time.
# Seen: on one host with four ranks or more, calls 1 to 4 give another float32 sum than all later ones, on every rank
# alike: from the fifth call on MPICH adds in shared memory, along another tree. The first four steps of a training are
# so no prediction of the fifth, and a run that is taken up from a checkpoint has other bits than one that went on. A
# program that asks for threads (MPI_THREAD_MULTIPLE, as mpi4py does by itself) keeps the first order for good.
source "$(dirname -- "$0")/lib.sh"
install "${mpich_5_0_2[@]}"
launcher=("$(dirname -- "$python")/mpiexec" -n 4)
program <<'PY'
import mpi4py

mpi4py.rc.threads = False  # MPI_Init, as most programs in C call it
import numpy
from mpi4py import MPI

comm = MPI.COMM_WORLD.Dup()
mine = numpy.array([[2.0**24, 1, 1, -(2.0**24)][comm.rank]], numpy.float32)
for call in range(1, 8):
    total = numpy.empty_like(mine)
    comm.Allreduce(mine, total)
    everywhere = sorted(set(comm.allgather(float(total[0]))))
    if comm.rank == 0:
        print("call %d: %s on all ranks" % (call, everywhere))
PY
expect <<'OUT'
call 1: [1.0] on all ranks
call 2: [1.0] on all ranks
call 3: [1.0] on all ranks
call 4: [1.0] on all ranks
call 5: [0.0] on all ranks
call 6: [0.0] on all ranks
call 7: [0.0] on all ranks
OUT
