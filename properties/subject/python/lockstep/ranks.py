"""The ranks of the subject python:FILE:FUNCTION. `lockstep` starts this file; for a person there is nothing to run.

    ranks.py FILE FUNCTION probe               what the function declares, as one line of JSON
    ranks.py FILE FUNCTION [detailed-checks] rank-fork-server FD
                                               forks a process for each rank; torch and FILE are loaded once. With the
                                               checks of TORCH_DISTRIBUTED_DEBUG=DETAIL if they are asked for

The messages are those of properties/lane/rank_server.h and properties/lane/python_job.h. A rank's process lives on
from case to case, until it is killed: `lockstep` kills it when it hangs, and replaces it when it ends.
"""

import ctypes
import gc
import importlib.machinery
import importlib.util
import json
import os
import signal
import socket
import struct
import sys
import warnings

if __name__ == "__main__":  # run as a file: the package is in the folder above
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

MESSAGES = 3  # properties/subject/python_subject.cc
DETAILED_CHECKS = "detailed-checks"  # properties/cli/shrink_failure.cc
MARK = 0x4C6F636B73746570  # properties/process/message.cc
PR_SET_PDEATHSIG = 1
# What concerns ranks alone: parameters without a dimension; an optimizer that steps after each synced step; ranks that
# begin with different values of the parameters; backwards whose gradients at the roots are not 1; parameters that are
# converted and back, or moved, after they were wrapped; collectives of the user's at the begin and the end of steps; and
# buffers, which graphs keep for their backward, and of which ranks have values of their own.
SCALARS, STEPS, BROADCAST, ROOTS, MOVES, COLLECTIVES, BUFFERS = OF_RANKS = (
    "scalars", "steps", "broadcast", "roots", "moves", "collectives", "buffers")
PLACES_OF_NO_SYNC = "forward", "backward", "both"


class NotUsable(Exception):
    """Says in one line why the function cannot be a subject."""


def one_line(error):
    """An error as a person reads it: its type, and the first line of what it says."""
    try:
        text = str(error).strip().splitlines()
    except Exception:  # an error of the user's may say anything, or nothing
        text = []
    return "%s: %s" % (type(error).__name__, text[0][:800]) if text else type(error).__name__


def prepare():
    """Before torch is loaded: ranks share two processors with many others, and talk over the loopback interface."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    os.environ.setdefault("GLOG_minloglevel", "2")


def load_torch():
    warnings.filterwarnings("ignore", module="torch")  # they are about the machine, such as that it has no NumPy
    try:
        import torch
        import torch.distributed as dist
    except Exception as error:
        raise NotUsable("it has no torch (%s): install torch for it, or name another Python in LOCKSTEP_PYTHON"
                        % one_line(error)) from None
    if not dist.is_available():
        raise NotUsable("its torch %s is built without torch.distributed" % torch.__version__)
    torch.set_num_threads(1)
    return torch


def load_what_ranks_need():
    """DistributedDataParallel imports it at its construction, which takes seconds in each rank."""
    try:
        importlib.import_module("torch._dynamo")
    except Exception:  # it is not there before PyTorch 2.0, and what needs it says so
        pass


def place_of(error, path):
    """" (line N)": the deepest line of the file that the error went through."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and error.filename == path:
        line = error.lineno
    return "" if line is None else " (line %d)" % line


def load_wrapper(path, name):
    """The function of the file, which is run as a module that is not __main__."""
    sys.path.insert(1, os.path.dirname(path))
    loader = importlib.machinery.SourceFileLoader("lockstep_wrapper", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("lockstep_wrapper", loader))
    sys.modules["lockstep_wrapper"] = module
    threads = len(os.listdir("/proc/self/task"))
    try:
        loader.exec_module(module)
    except BaseException as error:  # sys.exit() in a file is no reason to end without a word
        raise NotUsable("%s cannot be loaded%s: %s" % (path, place_of(error, path), one_line(error))) from None
    if len(os.listdir("/proc/self/task")) > threads:
        raise NotUsable("%s starts threads when it is loaded, and ranks are forked from that process: start them in "
                        "%s()" % (path, name))
    function = getattr(module, name, None)
    if function is None:
        own = [key for key, value in vars(module).items()
               if callable(value) and getattr(value, "__module__", "") == "lockstep_wrapper"]
        raise NotUsable("%s has no function '%s'; it has: %s" % (path, name, ", ".join(own) or "none"))
    if not callable(function):
        raise NotUsable("'%s' in %s is no function" % (name, path))
    return function


def declared(function):
    """What the function says that it can do: the names in its attribute `can`."""
    can = getattr(function, "can", [])
    names = can.split() if isinstance(can, str) else can
    if not isinstance(names, (list, tuple, set)) or not all(isinstance(each, str) for each in names):
        raise NotUsable("its attribute `can` must be a list of names, or a text with spaces between them")
    return set(names)


def check_attributes(function):
    """What only ranks read."""
    where = getattr(function, "no_sync", "forward")
    if where not in PLACES_OF_NO_SYNC:
        raise NotUsable("its attribute `no_sync` is %r: give one of %s" % (where, ", ".join(PLACES_OF_NO_SYNC)))
    if where != "forward" and "interleaved" in declared(function):
        raise NotUsable("its attribute `no_sync` is %r, and it declares interleaved: a backward of a step that has local and "
                        "synced forwards is neither" % where)
    excludes = getattr(function, "excludes", ())
    if not isinstance(excludes, (list, tuple)) or not all(map(callable, excludes)):
        raise NotUsable("its attribute `excludes` must be a list of functions of a program and of the number of a step")


def probe(path, name):
    answer = os.dup(1)
    sink = os.open(os.devnull, os.O_WRONLY)  # what the file prints is no answer
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    try:
        torch = load_torch()
        function = load_wrapper(path, name)
        check_attributes(function)
        said = {"messages": MESSAGES, "torch": torch.__version__, "can": sorted(declared(function) - set(OF_RANKS) | (declared(function) & {BUFFERS})),
                "contract": str(getattr(function, "contract", "lockstep")),
                "order": str(getattr(function, "order", "")), "scale": str(getattr(function, "scale", ""))}
    except NotUsable as error:
        said = {"error": str(error)}
    os.write(answer, json.dumps(said).encode())
    os._exit(0)  # whatever the file has left to do


class Line:
    """Messages over a socket: a mark, a length, and that many bytes."""

    def __init__(self, fd):
        self.socket = socket.socket(fileno=fd)
        self.socket.setblocking(True)

    def send(self, text):
        data = text.encode()
        self.socket.sendall(struct.pack("=QQ", MARK, len(data)) + data)

    def receive(self):
        """The next message; None if the other end is gone."""
        header = self.receive_bytes(16)
        return None if header is None else self.receive_bytes(struct.unpack("=QQ", header)[1])

    def receive_bytes(self, count):
        data = bytearray()
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            if not part:
                return None
            data += part
        return bytes(data)


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def fork_rank():
    """Forks twice, so that the rank becomes a child of the process that runs the case (rank_fork_server.h). Returns the
    rank's number, and 0 in the rank."""
    reader, writer = os.pipe()
    between = os.fork()
    if between == 0:
        rank = os.fork()
        if rank != 0:
            os.write(writer, struct.pack("=i", rank))
            os._exit(0)
        os.close(reader)
        os.close(writer)
        return 0
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        told = pipe.read(4)
    os.waitpid(between, 0)
    return struct.unpack("=i", told)[0] if len(told) == 4 else -11  # EAGAIN


def serve_forks(fd, function):
    from lockstep.training import serve_rank

    die_with_parent()
    sink = os.open(os.devnull, os.O_WRONLY)  # Gloo prints there which ranks are connected
    os.dup2(sink, 1)
    os.close(sink)
    gc.collect()
    gc.freeze()  # what torch has made stays, and need not be looked at after every case
    line = Line(fd)
    while True:
        served = socket.recv_fds(line.socket, 1, 64)[1]
        if not served:
            return
        rank = fork_rank()
        if rank == 0:
            line.socket.close()
            serve_rank(Line(served[0]), function)
            os._exit(0)
        for each in served:
            os.close(each)
        line.send(str(rank))


def main(path, name, command, *words):
    import lockstep

    lockstep.is_rank = True  # fuzz() in the file does nothing here
    if command == DETAILED_CHECKS:
        os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    prepare()
    if command == "probe":
        probe(path, name)
    load_torch()
    load_what_ranks_need()
    serve_forks(int(words[-1]), load_wrapper(path, name))


if __name__ == "__main__":
    main(*sys.argv[1:])
