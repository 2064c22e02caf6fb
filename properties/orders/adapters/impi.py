"""Intel MPI, from its wheel impi-rt."""
import mpi


class Adapter(mpi.Adapter):
    package = "impi-rt"
