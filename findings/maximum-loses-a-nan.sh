#!/usr/bin/env bash
# maximum-loses-a-nan: the largest of 1 and NaN over two ranks, asked of four libraries
#
# Guess: a maximum over ranks treats NaN as numpy.maximum does (NaN), or as C's fmax (1), and all ranks have one result.
# Seen: it depends on which rank has the NaN, in each library, and in the other direction for some: MLX and XGBoost lose
# that of rank 0, JAX that of rank 1. With MPICH the two ranks have different results of one call: each has the
# other's value. A gradient norm by maximum, reduced to find out whether to skip a step, finds an invalid gradient on some
# ranks alone.
source "$(dirname -- "$0")/lib.sh"
install "${mpich_5_0_2[@]}" "${mlx_0_32_4[@]}" jax==0.10.2 jaxlib==0.10.2 ml_dtypes==0.6.0 \
  opt_einsum==3.4.0 scipy==1.17.1 xgboost-cpu==3.2.0
printed=$scratch/printed
cat >"$scratch/mpi.py" <<'PY'
import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
for holder in (0, 1):
    result = np.zeros(1)
    world.Allreduce(np.array([np.nan if world.rank == holder else 1.0]), result, op=MPI.MAX)
    every = world.gather(result[0].item())
    if world.rank == 0:
        print("MPICH, NaN on rank %d: %s" % (holder, every))
PY
"${python%/*}/mpiexec" -n 2 "$python" "$scratch/mpi.py" >"$printed"
ranks 2 <<'PY'
import json
import os

import numpy as np

rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"])
values = [[np.nan if rank == holder else 1.0] for holder in (0, 1)]

import mlx.core as mx

os.environ["MLX_RANK"], os.environ["MLX_HOSTFILE"] = str(rank), "hosts-%d.json" % rank
with open(os.environ["MLX_HOSTFILE"], "w") as hosts:
    json.dump([["127.0.0.1:%d" % (port + 1 + peer)] for peer in range(2)], hosts)
mx.distributed.init(strict=True, backend="ring")
for holder in (0, 1):
    print("MLX, NaN on rank %d: %g" % (holder, mx.distributed.all_max(mx.array(values[holder])).item()))

from xgboost import collective
from xgboost_workers import as_worker

with as_worker():
    for holder in (0, 1):
        result = collective.allreduce(np.array(values[holder]), collective.Op.MAX)
        print("XGBoost, NaN on rank %d: %g" % (holder, result[0]))

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.distributed.initialize("127.0.0.1:%d" % port, 2, rank)
mesh = Mesh(np.array(jax.devices()), ("data",))
largest = jax.jit(jax.shard_map(lambda x: jax.lax.pmax(x, "data"), mesh=mesh, in_specs=P("data"), out_specs=P()))
for holder in (0, 1):
    array = jax.make_array_from_process_local_data(NamedSharding(mesh, P("data")), np.array(values[holder], np.float32))
    print("JAX, NaN on rank %d: %g" % (holder, largest(array).addressable_data(0)[0]))
PY
cat "$scratch/seen" >>"$printed"
mv "$printed" "$scratch/seen"
expect <<'OUT'
MPICH, NaN on rank 0: [1.0, nan]
MPICH, NaN on rank 1: [nan, 1.0]
all ranks: MLX, NaN on rank 0: 1
all ranks: MLX, NaN on rank 1: nan
all ranks: XGBoost, NaN on rank 0: 1
all ranks: XGBoost, NaN on rank 1: nan
all ranks: JAX, NaN on rank 0: nan
all ranks: JAX, NaN on rank 1: 1
OUT
