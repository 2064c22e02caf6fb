#!/usr/bin/env bash
# scattered-sum-is-no-slice: JAX's psum_scatter between processes is not a slice of its psum
#
# Guess: psum_scatter gives each process its part of what psum gives to all, bit for bit.
# Seen: on CPUs psum goes around a ring that begins at another process in each part of the array, so that the same four
# numbers have other sums at other places, and psum_scatter adds pairs of pairs everywhere. Replacing psum by a
# psum_scatter and an all_gather, as sharding an optimizer's state does, changes the float32 bits of the gradients.
source "$(dirname -- "$0")/lib.sh"
install "${jax_0_10_2[@]}"
ranks 4 <<'PY'
import os

import jax
import numpy
from jax.sharding import NamedSharding, PartitionSpec

rank = int(os.environ["RANK"])
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize("127.0.0.1:" + os.environ["MASTER_PORT"], 4, rank)
mesh = jax.sharding.Mesh(numpy.array(jax.devices()), ("p",))
mine = numpy.full((1, 8), [1, 2.0**24, -(2.0**24), 1][rank], numpy.float32)
whole = jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("p")), mine)


def all_parts(function):
    mapped = jax.shard_map(function, mesh=mesh, in_specs=PartitionSpec("p"), out_specs=PartitionSpec("p"))
    return numpy.asarray(jax.jit(mapped)(whole).addressable_shards[0].data).ravel().tolist()


print("psum:", all_parts(lambda x: jax.lax.psum(x, "p")))
scattered = lambda x: jax.lax.psum_scatter(x[0], "p", tiled=True)
print("psum_scatter, gathered:", all_parts(lambda x: jax.lax.all_gather(scattered(x), "p", tiled=True)))
PY
expect <<'OUT'
all ranks: psum: [2.0, 2.0, 2.0, 2.0, 0.0, 0.0, 2.0, 2.0]
all ranks: psum_scatter, gathered: [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
OUT
