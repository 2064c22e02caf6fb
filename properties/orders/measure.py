#!/usr/bin/env python3
"""measure.py version ADAPTER
measure.py needs ADAPTER VERSION
measure.py run ADAPTER RANKS FOLDER
measure.py rank ADAPTER FOLDER

The part of `lockstep orders` that runs the library which is measured, in the Python in which that library is
installed. `version` prints which version is installed, what can be measured, and what is to be said of the machine;
`needs` prints what pip has to install.
`run` starts one process a rank (`rank`), which do what FOLDER/plan says.

A plan has a line for each measurement, "ENTRY COLLECTIVE DTYPE ELEMENTS CALLS REPEATS ROOT": REPEATS times a new
communicator, if the library has such, and on it CALLS equal calls. Rank R takes its values from FOLDER/values.DTYPE.R, and
writes each different result of an entry once to FOLDER/results.R, and for each call a line to FOLDER/index.R:
"ENTRY REPEAT CALL OFFSET BYTES BEGIN", where BEGIN is the number of the first element of which the rank got the sum.
"""
import ctypes
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
import types

try:
    import numpy
except ModuleNotFoundError:  # what is missing can be told without it
    if sys.argv[1:2] != ["needs"]:
        raise
    sys.modules["numpy"] = types.ModuleType("numpy")

SECONDS = int(os.environ.get("LOCKSTEP_ORDERS_SECONDS") or "300")  # that one run of all ranks may take
PR_SET_PDEATHSIG = 1  # of linux/prctl.h
DTYPES = {"float32": "float32", "float64": "float64", "float16": "uint16", "bfloat16": "uint16"}  # as NumPy has them


def load(adapter):
    """The class Adapter of a Python file, of one of this folder's adapters by its name, or for a shared library."""
    if adapter.endswith(".so"):
        kind = load("shared_library")
        kind.use(adapter)
        return kind
    file = adapter if adapter.endswith(".py") else os.path.join(os.path.dirname(os.path.abspath(__file__)), "adapters", adapter + ".py")
    if not os.path.isfile(file):
        sys.exit("there is no adapter '%s': give the name of a file that ends in .py" % adapter)
    spec = importlib.util.spec_from_file_location("lockstep_adapter", file)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, os.path.dirname(file))
    spec.loader.exec_module(module)
    return module.Adapter


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def one_process_a_rank(command, ranks):
    """(arguments, further environment) of each process."""
    port = str(free_port())
    return [(command, {"LOCKSTEP_RANK": str(rank), "LOCKSTEP_RANKS": str(ranks), "LOCKSTEP_PORT": port}) for rank in range(ranks)]


def end_with_parent(parent=None):
    """This process is killed as soon as its parent ends, however that ends: no rank is left behind. A child that its parent starts
    says whose child it has to be, as that parent may have ended before."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def end(processes):
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run(adapter, ranks, folder):
    """Starts the processes, and waits until all have ended. The first that fails ends the others."""
    kind = load(adapter)
    command = [sys.executable, os.path.abspath(__file__), "rank", adapter, folder]
    launched = getattr(kind, "launch", one_process_a_rank)(command, ranks)
    bin_folder = os.path.dirname(sys.executable)
    this_process = os.getpid()
    processes = []
    with open(os.path.join(folder, "log"), "wb") as log:
        for arguments, further in launched:
            environment = dict(os.environ, PATH=bin_folder + ":" + os.environ.get("PATH", ""))
            environment.update(further)
            processes.append(subprocess.Popen(arguments, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                                              preexec_fn=lambda: end_with_parent(this_process)))
        limit = time.monotonic() + SECONDS
        failed = ""
        while any(process.poll() is None for process in processes) and not failed:
            if any(process.poll() not in (None, 0) for process in processes):
                failed = "a rank ended with %s" % [process.poll() for process in processes if process.poll()][0]
            elif time.monotonic() > limit:
                failed = "the ranks did not end within %d s (LOCKSTEP_ORDERS_SECONDS=N gives them more, for a busy machine)" % SECONDS
            time.sleep(0.02)
        if not failed and any(process.poll() for process in processes):
            failed = "a rank ended with %s" % [process.poll() for process in processes if process.poll()][0]
        end(processes)
    if failed:
        with open(os.path.join(folder, "log"), errors="replace") as log:
            lines = [line.strip() for line in log if line.strip()]
        sys.exit("%s: %s" % (failed, " | ".join(lines[-6:])[-800:] or "no output"))


def rank(adapter, folder):
    """Does what the plan says."""
    library = load(adapter)()
    me = library.rank
    values = {}
    with open(os.path.join(folder, "plan")) as plan, open(os.path.join(folder, "results.%d" % me), "wb") as results, \
         open(os.path.join(folder, "index.%d" % me), "w") as index:
        for line in plan:
            entry, collective, dtype, elements, calls, repeats, root = line.split()
            if dtype not in values:
                values[dtype] = numpy.fromfile(os.path.join(folder, "values.%s.%d" % (dtype, me)), DTYPES[dtype])
            written = {}
            for repeat in range(int(repeats)):
                group = library.new_group()
                for call in range(int(calls)):
                    given = values[dtype][:int(elements)].copy()
                    begin, got = library.sum_of(collective, group, given, dtype, int(root))
                    raw = b"" if got is None else numpy.ascontiguousarray(got).tobytes()
                    if raw not in written:
                        written[raw] = results.tell()
                        results.write(raw)
                    index.write("%s %d %d %d %d %d\n" % (entry, repeat, call, written[raw], len(raw), begin))
                library.free_group(group)
    library.close()


def main(arguments):
    task, adapter = arguments[:2]
    if task == "version":
        kind = load(adapter)
        print(kind.version())
        print(" ".join(kind.collectives))
        print(" ".join(kind.dtypes))
        print(kind.remark() if hasattr(kind, "remark") else "")
    elif task == "needs":
        print(" ".join(load(adapter).needs(arguments[2])))
    elif task == "run":
        end_with_parent()
        run(adapter, int(arguments[2]), arguments[3])
    elif task == "rank":
        end_with_parent()  # which is a launcher's process for MPI
        rank(adapter, arguments[2])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
