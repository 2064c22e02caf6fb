#!/usr/bin/env bash
# mean-of-gradients-is-their-sum: pmean(grad(loss)) inside of JAX's shard_map is too large by the number of devices
#
# Guess: the classic line of data parallelism, pmean(grad(loss)(weight, batch)), gives the mean of the devices' gradients in
# shard_map as it does in pmap.
# Seen: with check_vma, which is on by default, the gradient with respect to a replicated weight is summed over the devices
# by autodiff itself; pmean then averages equal sums, and the result is W times the mean. With check_vma=False, and in
# pmap, the same line gives the mean. Code that moves from pmap to shard_map trains with W times the learning rate.
source "$(dirname -- "$0")/lib.sh"
install "${jax_0_10_2[@]}"
export XLA_FLAGS=--xla_force_host_platform_device_count=4
program <<'PY'
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()), ("data",))
batch, weight = jnp.array([3.0, 4.0, 5.0, 6.0]), jnp.array(1.0)  # the gradient on a device is its number of the batch


def mean_gradient(weight, own):
    return jax.lax.pmean(jax.grad(lambda w: (w * own).sum())(weight), "data")


print("mean of the gradients:", batch.mean())
for check in (True, False):
    mapped = jax.shard_map(mean_gradient, mesh=mesh, in_specs=(P(), P("data")), out_specs=P(), check_vma=check)
    print("shard_map, check_vma=%s: %g" % (check, jax.jit(mapped)(weight, batch)))
print("pmap: %g" % jax.pmap(mean_gradient, axis_name="data", in_axes=(None, 0))(weight, batch)[0])
PY
expect <<'OUT'
mean of the gradients: 4.5
shard_map, check_vma=True: 18
shard_map, check_vma=False: 4.5
pmap: 4.5
OUT
