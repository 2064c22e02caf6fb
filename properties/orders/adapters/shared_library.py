"""A shared library with the functions of lockstep_orders.h. measure.py sets `path`."""
import ctypes
import os

import numpy


class Adapter:
    path = ""
    dtypes = ("float32", "float64", "float16", "bfloat16")
    collectives = ("all_reduce",)  # use() adds reduce_scatter_block where the library has it

    @classmethod
    def use(cls, path):
        """Loads the library, and looks at what it exports."""
        cls.path = path
        cls.library = ctypes.CDLL(path)
        for name in ("join", "all_reduce", "leave"):
            if not hasattr(cls.library, "lockstep_orders_" + name):
                raise SystemExit("%s does not export lockstep_orders_%s: see lockstep_orders.h" % (path, name))
        if hasattr(cls.library, "lockstep_orders_reduce_scatter"):
            cls.collectives = ("all_reduce", "reduce_scatter_block")

    @classmethod
    def version(cls):
        return "of yours"

    @classmethod
    def needs(cls, version):
        return ["numpy"]

    def __init__(self):
        self.rank, self.ranks = int(os.environ["LOCKSTEP_RANK"]), int(os.environ["LOCKSTEP_RANKS"])
        self.call("join", ctypes.c_int(self.rank), ctypes.c_int(self.ranks), ctypes.c_int(int(os.environ["LOCKSTEP_PORT"])))

    def call(self, name, *arguments):
        code = getattr(self.library, "lockstep_orders_" + name)(*arguments)
        if code != 0:
            raise SystemExit("rank %d: lockstep_orders_%s returned %d" % (self.rank, name, code))

    def new_group(self):
        if hasattr(self.library, "lockstep_orders_new_group"):
            self.call("new_group")

    def free_group(self, group):
        pass

    def sum_of(self, collective, group, given, dtype, root):
        own = len(given) if collective == "all_reduce" else len(given) // self.ranks
        got = numpy.empty(own, given.dtype)
        name = "all_reduce" if collective == "all_reduce" else "reduce_scatter"
        self.call(name, given.ctypes.data_as(ctypes.c_void_p), got.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(own),
                  ctypes.c_char_p(dtype.encode()))
        return 0 if collective == "all_reduce" else own * self.rank, got

    def close(self):
        self.call("leave")
