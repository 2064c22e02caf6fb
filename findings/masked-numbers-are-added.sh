#!/usr/bin/env bash
# masked-numbers-are-added: a sum over ranks takes the numbers that a masked array hides, or loses those of other ranks
#
# Guess: a sum of NumPy's masked arrays over two ranks leaves out what is masked, as their own sum() does, or the call
# refuses them.
# Seen: mpi4py's Allreduce and XGBoost's allreduce add the hidden numbers, here the -999 that stands for a missing value, and
# XGBoost's result then has the mask of the rank that looks at it. mpi4py's allreduce, which pickles, hides the sum where one
# rank has no value, so that the other rank's 5 is lost; it is the sum of two masked arrays as NumPy has it.
# Better: sum array.filled(0) and the counts of what is there.
source "$(dirname -- "$0")/lib.sh"
install "${mpich_5_0_2[@]}" xgboost-cpu==3.2.0 scipy==1.17.1
launcher=("${python%/*}/mpiexec" -n 2)
program <<'PY'
import numpy as np
from mpi4py import MPI
from xgboost import collective
from xgboost.tracker import RabitTracker

world = MPI.COMM_WORLD
own = np.ma.masked_equal([1.0, -999.0] if world.rank == 0 else [2.0, 5.0], -999.0)


def show(name, result):
    every = world.gather(result)
    if world.rank == 0:
        print("%s: %s" % (name, every[0] if every[0] == every[1] else "%s on rank 0, %s on rank 1" % tuple(every)))


show("own", own.tolist())
show("sum() of all", np.ma.stack(world.allgather(own)).sum(axis=0).tolist())
result = np.zeros(2)
world.Allreduce(own, result)
show("mpi4py, Allreduce", result.tolist())
show("mpi4py, allreduce", world.allreduce(own).tolist())
arguments = None
if world.rank == 0:
    tracker = RabitTracker(host_ip="127.0.0.1", n_workers=2)
    tracker.start()
    arguments = tracker.worker_args()
with collective.CommunicatorContext(**world.bcast(arguments), dmlc_task_id=str(world.rank)):
    result = collective.allreduce(own, collective.Op.SUM)
show("XGBoost, allreduce", result.tolist())
PY
sed -i '/Task . got rank/d' "$scratch/seen"
expect <<'OUT'
own: [1.0, None] on rank 0, [2.0, 5.0] on rank 1
sum() of all: [3.0, 5.0]
mpi4py, Allreduce: [3.0, -994.0]
mpi4py, allreduce: [3.0, None]
XGBoost, allreduce: [3.0, None] on rank 0, [3.0, -994.0] on rank 1
OUT
