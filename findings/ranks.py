"""ranks.py COUNT PROGRAM [ARGUMENT ...]: runs the program as COUNT ranks on this host, and prints what each printed.

A rank finds RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in its environment, as those of torchrun do, and talks over
the loopback device. Lines that all ranks print alike are printed once. Exit code: 0 if every rank ended with 0.

Ranks are forks of this process. It imports what the program imports of torch before, as that takes seconds of each
rank otherwise; other libraries start threads when they are imported, and are left to the ranks.
"""

import os
import re
import runpy
import signal
import socket
import sys
import tempfile
import time

LIMIT_SECONDS = 1200  # a machine with much else to do needs some of it
NOISE = re.compile(r"\[Gloo\] |\[LightGBM\] |\[\d\d:\d\d:\d\d\] ")  # what C++ libraries log to standard output


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def import_torch(program):
    with open(program) as file:
        text = file.read()
    for line in re.findall(r"^(?:import|from) torch\b.*$", text, re.MULTILINE):
        exec(line, {})
    if "DistributedDataParallel" in text:
        import torch._dynamo  # noqa: F401  the wrapper does, when it is constructed


def start(rank, environment, files, still_running):
    """Forks a process that is the rank, and returns its number."""
    process = os.fork()
    if process:
        return process
    for descriptor, file in zip((1, 2), files):
        os.dup2(file.fileno(), descriptor)
    os.environ.update(environment, RANK=str(rank), LOCAL_RANK=str(rank))
    sys.argv = sys.argv[2:]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")
    sys.stdout.flush()
    reader, writer = still_running  # no rank leaves while another one may need it: the pipe ends with its last writer
    os.close(writer)
    os.read(reader, 1)
    sys.exit(0)


def wait(process, deadline):
    """The exit code of the process, which is ended at the deadline."""
    while time.monotonic() < deadline:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return "the limit of %d seconds" % LIMIT_SECONDS


def main():
    count, program = int(sys.argv[1]), sys.argv[2]
    import_torch(program)
    environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(count)}
    environment.update(LOCAL_WORLD_SIZE=str(count), GLOO_SOCKET_IFNAME="lo")
    files = [(tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")) for _ in range(count)]
    still_running = os.pipe()
    processes = [start(rank, environment, files[rank], still_running) for rank in range(count)]
    for descriptor in still_running:
        os.close(descriptor)
    deadline = time.monotonic() + LIMIT_SECONDS
    outputs, failed = [], False
    for rank, (printed, errors) in enumerate(files):
        code = wait(processes[rank], deadline)
        printed.seek(0)
        outputs.append([line for line in printed.read().splitlines() if not NOISE.match(line)])
        if code != 0:
            failed = True
            errors.seek(0)
            print("rank %d ended with %s\n%s" % (rank, code, errors.read()[-2000:]), file=sys.stderr)
    for index in range(max(map(len, outputs))):
        lines = [output[index] if index < len(output) else "nothing" for output in outputs]
        if len(set(lines)) == 1:
            print("all ranks: " + lines[0])
        else:
            for rank, line in enumerate(lines):
                print("rank %d: %s" % (rank, line))
    return 1 if failed else 0


sys.exit(main())
