"""NCCL, from its wheel, or the libnccl.so.2 that LOCKSTEP_NCCL names: one process a rank, each with a GPU of its own.

NCCL and the CUDA runtime are loaded into the process and called as C functions; nothing is compiled. NCCL itself chooses the
algorithm, the protocol and the channels, and its variables (NCCL_ALGO and others) work as in any program.

    LOCKSTEP_NCCL_ONE_GPU=1  all ranks share the first GPU, each as if it were on a host of its own: NCCL then sends over its network
    LOCKSTEP_NCCL_PLAYED=1   the GPU is played on the host (faults/played_gpu). What is measured then is how the played kernels add,
                             which are Lockstep's: the table says so, and it is not recorded
"""
import ctypes
import glob
import importlib.metadata
import os
import sys
import time

import numpy

SUM = 0  # ncclSum
IN_PROGRESS = 7  # ncclInProgress
DTYPES = {"float16": 6, "float32": 7, "float64": 8, "bfloat16": 9}
NON_BLOCKING = 1  # cudaStreamNonBlocking
TO_GPU, FROM_GPU = 1, 2  # cudaMemcpyKind
SECONDS = 60  # that rank 0 may take to say where ranks meet, and NCCL for what it does in the background
WHEELS = ("nvidia-nccl-cu13", "nvidia-nccl-cu12")
RUNTIMES = {"nvidia-cuda-runtime": "libcudart.so.13", "nvidia-cuda-runtime-cu12": "libcudart.so.12"}


def is_set(name):
    return os.environ.get(name) == "1"


def is_played():
    return is_set("LOCKSTEP_NCCL_PLAYED")


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 128)]


def file_of(package, name):
    """A file of an installed wheel, or None."""
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    return next((str(each.locate()) for each in files if each.name == name), None)


def nccl_file():
    named = os.environ.get("LOCKSTEP_NCCL")
    if named:
        if not os.path.isfile(named):
            raise FileNotFoundError("LOCKSTEP_NCCL: there is no file %s" % named)
        return named
    for wheel in WHEELS:
        found = file_of(wheel, "libnccl.so.2")
        if found:
            return found
    raise ModuleNotFoundError("no wheel of NCCL is installed (%s)" % ", ".join(WHEELS))


def played_gpu_file():
    """Beside the program: in a build, and where it is installed."""
    named = os.environ.get("LOCKSTEP_PLAYED_GPU")
    here = os.path.dirname(os.path.abspath(sys.argv[0]))
    places = [named] if named else [os.path.join(here, "..", "faults", "played_gpu"), os.path.join(here, "..", "..", "..", "lib", "lockstep", "played")]
    for place in places:
        file = place if place.endswith(".so") else os.path.join(place, "liblockstep-played-gpu.so")
        if os.path.isfile(file):
            return os.path.abspath(file)
    sys.exit("LOCKSTEP_PLAYED_GPU: there is no file %s" % named if named
             else "the played GPU is not beside the program: name liblockstep-played-gpu.so in LOCKSTEP_PLAYED_GPU")


def load_runtime():
    """The CUDA runtime, or why there is none."""
    candidates = [file_of(package, name) for package, name in RUNTIMES.items()] + list(RUNTIMES.values())
    for folder in ("/usr/local/cuda/lib64", "/usr/local/cuda/targets/*/lib"):
        candidates += sorted(glob.glob(os.path.join(folder, "libcudart.so.1[23]")), reverse=True)
    for candidate in candidates:
        try:
            if candidate:
                return ctypes.CDLL(candidate), ""
        except OSError:
            pass
    return None, "there is no CUDA runtime (pip install nvidia-cuda-runtime-cu12)"


def load_played(nccl):
    file = played_gpu_file()
    try:
        module = ctypes.CDLL(file)
    except OSError as error:
        sys.exit("the played GPU cannot be loaded: %s" % error)
    if not hasattr(module, "lockstep_played_load"):
        sys.exit("the played GPU cannot be loaded: %s is another library" % file)
    module.lockstep_played_load.restype = ctypes.c_char_p
    why = module.lockstep_played_load(nccl.encode())
    if why is not None:
        sys.exit("the GPU cannot be played: %s" % why.decode())
    return module


def text_of_error(runtime, code):
    runtime.cudaGetErrorString.restype = ctypes.c_char_p
    return "%s (%d)" % (runtime.cudaGetErrorString(code).decode(), code)


def expect_gpus(ranks):
    """Ends with one line where there are not enough."""
    advice = "measure NCCL on a machine with NVIDIA GPUs, or see with LOCKSTEP_NCCL_PLAYED=1 how Lockstep's played kernels add"
    runtime, why = load_runtime()
    count = ctypes.c_int(0)
    if runtime is not None:
        code = runtime.cudaGetDeviceCount(ctypes.byref(count))
        why = "CUDA finds none here and says '%s'" % text_of_error(runtime, code)
    if count.value == 0:
        sys.exit("NCCL needs a GPU for each rank, and %s: %s" % (why, advice))
    if count.value < ranks and not is_set("LOCKSTEP_NCCL_ONE_GPU"):
        sys.exit("NCCL needs a GPU for each rank, and %d ranks have %d here: give --ranks up to %d, or LOCKSTEP_NCCL_ONE_GPU=1 for ranks that "
                 "share the first" % (ranks, count.value, count.value))


def as_hosts_of_their_own(rank):
    """What NCCL has to know to accept several ranks on one GPU. What the caller has set stays."""
    variables = {"NCCL_HOSTID": "lockstep-orders-%d-%d" % (os.getpid(), rank), "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1",
                 "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1", "NCCL_NET": "Socket", "NCCL_CUMEM_HOST_ENABLE": "0",
                 "NCCL_RAS_ENABLE": "0", "CUDA_MODULE_LOADING": "EAGER",
                 "NCCL_NET_PLUGIN_REF_COUNT": "1"}  # or 2.28 has no plug-in for the second communicator
    if is_played():  # which are the kernels that are played
        variables.update({"NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple", "NCCL_NVLS_ENABLE": "0", "NCCL_MNNVL_ENABLE": "0",
                          "NCCL_TUNER_PLUGIN": "none"})
    return {name: os.environ.get(name, value) for name, value in variables.items()}


class Adapter:
    collectives = ("all_reduce", "reduce_scatter_block", "reduce")
    dtypes = ("float32", "float64", "float16", "bfloat16")

    @classmethod
    def version(cls):
        file = nccl_file()
        if not os.environ.get("LOCKSTEP_NCCL"):
            return next(importlib.metadata.version(wheel) for wheel in WHEELS if file_of(wheel, "libnccl.so.2"))
        if is_played():
            load_played(file)
        version = ctypes.c_int(0)
        ctypes.CDLL(file).ncclGetVersion(ctypes.byref(version))
        return "%d.%d.%d" % (version.value // 10000, version.value // 100 % 100, version.value % 100)

    @classmethod
    def remark(cls):
        """Stands above each table: such a result is neither recorded nor compared."""
        if is_played():
            return "ON A PLAYED GPU, whose kernels are Lockstep's (faults/played_gpu) and not NCCL's"
        if is_set("LOCKSTEP_NCCL_ONE_GPU"):
            return "with all ranks on one GPU, each as if on a host of its own"
        return ""

    @classmethod
    def needs(cls, version):
        return ["nvidia-nccl-cu12==%s" % version, "nvidia-cuda-runtime-cu12", "numpy"]

    @staticmethod
    def launch(command, ranks):
        if not is_played():
            expect_gpus(ranks)
        out = []
        for rank in range(ranks):
            further = {"LOCKSTEP_RANK": str(rank), "LOCKSTEP_RANKS": str(ranks)}
            if is_played() or is_set("LOCKSTEP_NCCL_ONE_GPU"):
                further.update(as_hosts_of_their_own(rank))
            out.append((command, further))
        return out

    def __init__(self):
        self.rank, self.ranks = int(os.environ["LOCKSTEP_RANK"]), int(os.environ["LOCKSTEP_RANKS"])
        self.folder = sys.argv[-1]
        file = nccl_file()
        if is_played():
            self.cuda = load_played(file)
        else:
            self.cuda, why = load_runtime()
            if self.cuda is None:
                sys.exit(why)
        self.nccl = ctypes.CDLL(file)
        self.nccl.ncclGetErrorString.restype = ctypes.c_char_p
        self.nccl.ncclGetLastError.restype = ctypes.c_char_p
        self.cuda_call("cudaSetDevice", 0 if is_played() or is_set("LOCKSTEP_NCCL_ONE_GPU") else self.rank)
        self.stream = ctypes.c_void_p()
        self.cuda_call("cudaStreamCreateWithFlags", ctypes.byref(self.stream), NON_BLOCKING)
        self.groups = 0
        self.room = 0  # bytes of each of both buffers
        self.given, self.got = ctypes.c_void_p(), ctypes.c_void_p()

    def cuda_call(self, name, *arguments):
        code = getattr(self.cuda, name)(*arguments)
        if code != 0:
            sys.exit("rank %d: %s: %s" % (self.rank, name, text_of_error(self.cuda, code)))

    def nccl_call(self, name, group, *arguments):
        """A call, and what NCCL goes on with in the background before the next may follow. `group` is whom to ask about that."""
        code = getattr(self.nccl, name)(*arguments)
        limit = time.monotonic() + SECONDS
        while code == IN_PROGRESS and time.monotonic() < limit:
            time.sleep(0.001)
            state = ctypes.c_int(0)
            self.nccl.ncclCommGetAsyncError(group, ctypes.byref(state))
            code = state.value
        if code != 0:
            last = self.nccl.ncclGetLastError(None) or b""
            sys.exit("rank %d: %s: %s: %s" % (self.rank, name, self.nccl.ncclGetErrorString(code).decode(), last.decode()))

    def identity_of_next_group(self):
        """Rank 0 makes it, and the others read it from a file."""
        identity = UniqueId()
        file = os.path.join(self.folder, "nccl.%d" % self.groups)
        self.groups += 1
        if self.rank == 0:
            self.nccl_call("ncclGetUniqueId", None, ctypes.byref(identity))
            with open(file + ".new", "wb") as out:
                out.write(bytes(identity))
            os.rename(file + ".new", file)
            return identity
        limit = time.monotonic() + SECONDS
        while not os.path.exists(file):
            if time.monotonic() > limit:
                sys.exit("rank %d: rank 0 did not say within %d s where ranks meet" % (self.rank, SECONDS))
            time.sleep(0.01)
        with open(file, "rb") as text:
            return UniqueId.from_buffer_copy(text.read())

    def new_group(self):
        group = ctypes.c_void_p()
        self.nccl_call("ncclCommInitRankConfig", group, ctypes.byref(group), self.ranks, self.identity_of_next_group(), self.rank, None)
        return group

    def free_group(self, group):
        self.nccl_call("ncclCommDestroy", None, group)

    def make_room(self, size):
        if size <= self.room:
            return
        for buffer in (self.given, self.got):
            if self.room > 0:
                self.cuda_call("cudaFree", buffer)
            self.cuda_call("cudaMalloc", ctypes.byref(buffer), ctypes.c_size_t(size))
        self.room = size

    def copy(self, to, source, size, kind):
        self.cuda_call("cudaMemcpyAsync", to, source, ctypes.c_size_t(size), kind, self.stream)
        self.cuda_call("cudaStreamSynchronize", self.stream)

    def sum_of(self, collective, group, given, dtype, root):
        elements = len(given) // self.ranks if collective == "reduce_scatter_block" else len(given)
        got = numpy.empty(elements, given.dtype)
        self.make_room(given.nbytes)
        self.copy(self.given, given.ctypes.data_as(ctypes.c_void_p), given.nbytes, TO_GPU)
        arguments = [self.given, self.got, ctypes.c_size_t(elements), DTYPES[dtype], SUM]
        if collective == "reduce":
            arguments.append(root)
        name = {"all_reduce": "ncclAllReduce", "reduce_scatter_block": "ncclReduceScatter", "reduce": "ncclReduce"}[collective]
        self.nccl_call(name, group, *arguments, group, self.stream)
        self.copy(got.ctypes.data_as(ctypes.c_void_p), self.got, got.nbytes, FROM_GPU)
        if collective == "reduce" and self.rank != root:
            return 0, None
        return elements * self.rank if collective == "reduce_scatter_block" else 0, got

    def close(self):
        os._exit(0)  # its threads would look for a GPU that the process has already given back
