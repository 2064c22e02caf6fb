"""JAX between processes, on CPUs: a sum over all processes of the array that each has."""
import importlib.metadata
import os
import sys

import numpy

sys.path.pop(0)  # this folder, where "jax" is this file


class Adapter:
    collectives = ("all_reduce", "reduce_scatter_block")
    dtypes = ("float32", "float64", "float16", "bfloat16")

    @classmethod
    def version(cls):
        return importlib.metadata.version("jaxlib")

    @classmethod
    def needs(cls, version):
        return ["jax==%s" % version, "jaxlib==%s" % version, "numpy"]

    def __init__(self):
        import jax
        self.rank, self.ranks = int(os.environ["LOCKSTEP_RANK"]), int(os.environ["LOCKSTEP_RANKS"])
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_enable_x64", True)
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize("127.0.0.1:" + os.environ["LOCKSTEP_PORT"], self.ranks, self.rank)
        self.jax = jax
        self.mesh = jax.sharding.Mesh(numpy.array(jax.devices()), ("ranks",))
        self.compiled = {}

    def new_group(self):
        return None

    def free_group(self, group):
        pass

    def function(self, collective):
        spec = self.jax.sharding.PartitionSpec("ranks")
        reduce = lambda x: self.jax.lax.psum(x[0], "ranks")[None]
        if collective == "reduce_scatter_block":
            reduce = lambda x: self.jax.lax.psum_scatter(x[0], "ranks", tiled=True)[None]
        shard_map = getattr(self.jax, "shard_map", None)
        if shard_map is None:
            from jax.experimental.shard_map import shard_map
        return self.jax.jit(shard_map(reduce, mesh=self.mesh, in_specs=spec, out_specs=spec))

    def sum_of(self, collective, group, given, dtype, root):
        if collective == "reduce_scatter_block":
            given = given[:len(given) // self.ranks * self.ranks]
        typed = given.view(getattr(self.jax.numpy, dtype)) if given.dtype == numpy.uint16 else given
        sharding = self.jax.sharding.NamedSharding(self.mesh, self.jax.sharding.PartitionSpec("ranks"))
        whole = self.jax.make_array_from_process_local_data(sharding, typed[None], (self.ranks, len(given)))
        function = self.compiled.setdefault(collective, self.function(collective))
        got = numpy.asarray(function(whole).addressable_shards[0].data)[0]
        return len(given) // self.ranks * self.rank if collective == "reduce_scatter_block" else 0, got.view(given.dtype)

    def close(self):
        self.jax.distributed.shutdown()
