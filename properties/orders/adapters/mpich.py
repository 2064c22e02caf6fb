"""MPICH, from its wheel."""
import mpi


class Adapter(mpi.Adapter):
    package = "mpich"
