"""oneCCL on CPUs, between processes of one host, over the libfabric that Intel MPI's wheel brings.

Only oneCCL's functions for C++ run without a GPU, so that each run compiles oneccl.cc with the machine's C++ compiler (CXX, or c++)
against the headers of that version, which are the wheel oneccl-devel.
"""
import ctypes
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile

import numpy
import shared_library


def folder_of(package, ending):
    """The folder of an installed file, by the end of its name."""
    for file in importlib.metadata.files(package) or []:
        if str(file).endswith(ending):
            return str(file.locate())[:-len(ending)]
    raise FileNotFoundError("the wheel %s that is installed has no file %s" % (package, ending))


def compile_into(folder):
    """Compiles oneccl.cc, and returns the file of the shared library."""
    compiler = os.environ.get("CXX") or shutil.which("c++")
    if not compiler:
        sys.exit("oneCCL is called from C++, and there is no C++ compiler: install g++, or name one in CXX")
    library = os.path.join(folder, "liblockstep-oneccl.so")
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "oneccl.cc")
    ended = subprocess.run([compiler, "-std=c++17", "-O1", "-shared", "-fPIC", "-isystem", folder_of("oneccl-devel", "oneapi/ccl.hpp"), source,
                            "-o", library, os.path.join(folder_of("oneccl", "libccl.so.1"), "libccl.so.1"), "-Wl,--allow-shlib-undefined"],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if ended.returncode != 0:
        sys.exit("oneccl.cc cannot be compiled: %s" % " | ".join(ended.stdout.splitlines()[:3]))
    return library


class Adapter(shared_library.Adapter):
    collectives = ("all_reduce", "reduce_scatter_block", "reduce")

    @classmethod
    def version(cls):
        version, headers = importlib.metadata.version("oneccl"), importlib.metadata.version("oneccl-devel")
        if headers != version:
            raise ImportError("oneccl is %s, and its headers (oneccl-devel) are %s" % (version, headers))
        return version

    @classmethod
    def needs(cls, version):
        # Those of 2021 are linked with a library of 2025, but ask pip for any newer one as well.
        further = ["intel-sycl-rt~=2025.0"] if version.startswith("2021.") else []
        return ["oneccl==%s" % version, "oneccl-devel==%s" % version] + further + ["numpy"]

    @staticmethod
    def launch(command, ranks):
        folder = command[-1]
        # A new name in each run: the folder's earlier job may have left its address.
        address = os.path.join(tempfile.mkdtemp(prefix="oneccl-", dir=folder), "address")
        further = {"LOCKSTEP_ONECCL": compile_into(folder), "LOCKSTEP_ONECCL_ADDRESS": address, "LOCKSTEP_RANKS": str(ranks), "LOCKSTEP_PORT": "0",
                   "LD_LIBRARY_PATH": folder_of("oneccl", "libccl.so.1") + ":" + os.environ.get("LD_LIBRARY_PATH", "")}
        return [(command, dict(further, LOCKSTEP_RANK=str(rank))) for rank in range(ranks)]

    def __init__(self):
        self.use(os.environ["LOCKSTEP_ONECCL"])
        super().__init__()

    def sum_of(self, collective, group, given, dtype, root):
        if collective != "reduce":
            return super().sum_of(collective, group, given, dtype, root)
        got = numpy.empty_like(given)
        self.call("reduce", given.ctypes.data_as(ctypes.c_void_p), got.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(len(given)),
                  ctypes.c_char_p(dtype.encode()), ctypes.c_int(root))
        return 0, got if self.rank == root else None
