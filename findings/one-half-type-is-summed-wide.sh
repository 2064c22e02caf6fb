#!/usr/bin/env bash
# one-half-type-is-summed-wide: JAX adds bfloat16 in float32 and rounds once, and float16 after each addition
#
# Guess: psum treats the two types of 16 bits alike: both are rounded at each addition, or both once.
# Seen: between processes on CPUs 256 + 1 + 1 is 258 in bfloat16, in every order, which the format can hold. In float16
# 2048 + 1 + 1 is 2048, unless the two small ones meet first. So float16 loses what bfloat16 keeps, and its sum depends
# on which process has which number. PyTorch over Gloo rounds both types at each addition.
source "$(dirname -- "$0")/lib.sh"
install "${jax_0_10_2[@]}"
ranks 3 <<'PY'
import os

import jax
import numpy
from jax.sharding import NamedSharding, PartitionSpec

rank = int(os.environ["RANK"])
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize("127.0.0.1:" + os.environ["MASTER_PORT"], 3, rank)
mesh = jax.sharding.Mesh(numpy.array(jax.devices()), ("p",))
sharding = NamedSharding(mesh, PartitionSpec("p"))
spec = PartitionSpec("p")
total = jax.jit(jax.shard_map(lambda x: jax.lax.psum(x, "p"), mesh=mesh, in_specs=spec, out_specs=spec))
for name, large in (("bfloat16", 256), ("float16", 2048)):
    sums = []
    for place in range(3):
        mine = numpy.array([[large if rank == place else 1]]).astype(jax.numpy.dtype(name))
        whole = jax.make_array_from_process_local_data(sharding, mine)
        sums.append(float(numpy.asarray(total(whole).addressable_shards[0].data)[0, 0]))
    print("%s: %d + 1 + 1, the large one on each process in turn: %s" % (name, large, sums))
PY
expect <<'OUT'
all ranks: bfloat16: 256 + 1 + 1, the large one on each process in turn: [258.0, 258.0, 258.0]
all ranks: float16: 2048 + 1 + 1, the large one on each process in turn: [2050.0, 2048.0, 2048.0]
OUT
