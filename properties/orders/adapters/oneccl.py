"""oneCCL on CPUs, between processes of one host, over the libfabric that Intel MPI's wheel brings.

Each run compiles oneccl.cc with the machine's C++ compiler (CXX, or c++) against the headers of that version, which the wheel
oneccl-devel has.
"""
import ctypes
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
import time

import numpy

ADDRESS_BYTES = 256  # ccl::kvs::address_max_size
DTYPES = {"float16": 8, "float32": 9, "float64": 10, "bfloat16": 11}  # ccl::datatype
SECONDS = 60  # that rank 0 may take to say where ranks meet


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
    command = [compiler, "-std=c++17", "-O1", "-shared", "-fPIC", "-isystem", folder_of("oneccl-devel", "oneapi/ccl.hpp"), source,
               "-o", library, os.path.join(folder_of("oneccl", "libccl.so.1"), "libccl.so.1"), "-Wl,--allow-shlib-undefined"]
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if ended.returncode != 0:
        sys.exit("oneccl.cc cannot be compiled: %s" % " | ".join(ended.stdout.splitlines()[:3]))
    return library


class Adapter:
    collectives = ("all_reduce", "reduce_scatter_block", "reduce")
    dtypes = ("float32", "float64", "float16", "bfloat16")

    @classmethod
    def version(cls):
        version, headers = importlib.metadata.version("oneccl"), importlib.metadata.version("oneccl-devel")
        if headers != version:
            raise ImportError("oneccl is %s, and its headers (oneccl-devel) are %s" % (version, headers))
        return version

    @classmethod
    def needs(cls, version):
        # Those of 2021 are linked with a library of 2025, but are satisfied with any newer one when pip asks.
        further = ["intel-sycl-rt~=2025.0"] if version.startswith("2021.") else []
        return ["oneccl==%s" % version, "oneccl-devel==%s" % version] + further + ["numpy"]

    @staticmethod
    def launch(command, ranks):
        # A new folder in each run: an earlier one may have left its address.
        folder = tempfile.mkdtemp(prefix="oneccl-", dir=command[-1])
        further = {"LOCKSTEP_ONECCL": compile_into(folder), "LOCKSTEP_RANKS": str(ranks),
                   "LD_LIBRARY_PATH": folder_of("oneccl", "libccl.so.1") + ":" + os.environ.get("LD_LIBRARY_PATH", "")}
        return [(command, dict(further, LOCKSTEP_RANK=str(rank))) for rank in range(ranks)]

    def __init__(self):
        self.rank, self.ranks = int(os.environ["LOCKSTEP_RANK"]), int(os.environ["LOCKSTEP_RANKS"])
        self.library = ctypes.CDLL(os.environ["LOCKSTEP_ONECCL"])
        address = ctypes.create_string_buffer(ADDRESS_BYTES)
        file = os.path.join(os.path.dirname(os.environ["LOCKSTEP_ONECCL"]), "address")
        if self.rank == 0:
            self.call("join", self.rank, address)
            with open(file + ".new", "wb") as out:
                out.write(address.raw)
            os.rename(file + ".new", file)
        else:
            limit = time.monotonic() + SECONDS
            while not os.path.exists(file):
                if time.monotonic() > limit:
                    sys.exit("rank %d: rank 0 did not say within %d s where ranks meet" % (self.rank, SECONDS))
                time.sleep(0.01)
            with open(file, "rb") as text:
                address.raw = text.read()
            self.call("join", self.rank, address)

    def call(self, name, *arguments):
        function = getattr(self.library, "oneccl_" + name)
        function.restype = ctypes.c_char_p
        failure = function(*arguments)
        if failure is not None:
            sys.exit("rank %d: %s: %s" % (self.rank, name, failure.decode(errors="replace")))

    def new_group(self):
        self.call("new_group", self.rank, self.ranks)

    def free_group(self, group):
        pass

    def sum_of(self, collective, group, given, dtype, root):
        is_scattered = collective == "reduce_scatter_block"
        got = numpy.empty(len(given) // self.ranks if is_scattered else len(given), given.dtype)
        arguments = [given.ctypes.data_as(ctypes.c_void_p), got.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(len(got)), DTYPES[dtype]]
        if collective == "reduce":
            self.call("reduce", *arguments, root)
            return 0, got if self.rank == root else None
        self.call("reduce_scatter" if is_scattered else "all_reduce", *arguments)
        return len(got) * self.rank if is_scattered else 0, got

    def close(self):
        pass
