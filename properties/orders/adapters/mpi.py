"""An MPI library, through mpi4py. The library is the one that stands beside the Python (its wheel), or the only one there is."""
import importlib.metadata
import os
import shutil

import numpy


class Adapter:
    package = ""  # of PyPI; the adapters of the libraries say it
    collectives = ("all_reduce", "reduce_scatter_block", "reduce_scatter", "reduce", "iall_reduce")
    dtypes = ("float32", "float64")
    environment = {}

    @classmethod
    def version(cls):
        return importlib.metadata.version(cls.package).split(".post")[0]

    @classmethod
    def needs(cls, version):
        return ["%s==%s" % (cls.package, version), "mpi4py", "numpy"]

    @classmethod
    def launch(cls, command, ranks):
        launcher = shutil.which("mpiexec", path=os.path.dirname(command[0])) or "mpiexec"
        return [([launcher, "-n", str(ranks)] + command, cls.environment)]

    def __init__(self):
        import mpi4py
        # As MPI_Init does it. mpi4py itself asks for threads (MPI_THREAD_MULTIPLE), as then LOCKSTEP_MPI_THREADS=1 does.
        mpi4py.rc.threads = os.environ.get("LOCKSTEP_MPI_THREADS") == "1"
        from mpi4py import MPI
        self.mpi = MPI
        self.rank = MPI.COMM_WORLD.rank
        self.ranks = MPI.COMM_WORLD.size

    def new_group(self):
        return self.mpi.COMM_WORLD.Dup()

    def free_group(self, group):
        group.Free()

    def sum_of(self, collective, group, given, dtype, root):
        if collective == "all_reduce":
            got = numpy.empty_like(given)
            group.Allreduce(given, got)
            return 0, got
        if collective == "iall_reduce":
            got = numpy.empty_like(given)
            group.Iallreduce(given, got).Wait()
            return 0, got
        if collective == "reduce":
            got = numpy.empty_like(given)
            group.Reduce(given, got, root=root)
            return 0, got if self.rank == root else None
        # The elements of each rank: those of MPI_Reduce_scatter_block are the same everywhere.
        own = len(given) // self.ranks
        if collective == "reduce_scatter_block":
            got = numpy.empty(own, given.dtype)
            group.Reduce_scatter_block(given[:own * self.ranks], got)
            return own * self.rank, got
        if collective == "reduce_scatter":
            counts = [own + (rank < len(given) % self.ranks) for rank in range(self.ranks)]
            got = numpy.empty(counts[self.rank], given.dtype)
            group.Reduce_scatter(given, got, counts)
            return sum(counts[:self.rank]), got
        raise ValueError(collective)

    def close(self):
        pass
