"""ranks.py COUNT COMMAND...: runs the command as COUNT ranks on this host, and prints what each printed.

A rank finds RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in its environment, as those of torchrun do, and talks over
the loopback device. Lines that all ranks print alike are printed once. Exit code: 0 if every rank ended with 0.
"""

import os
import re
import socket
import subprocess
import sys
import tempfile
import time

LIMIT_SECONDS = 1200
NOISE = re.compile(r"\[Gloo\] |\[LightGBM\] |\[\d\d:\d\d:\d\d\] ")  # what C++ libraries log to standard output


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    count, command = int(sys.argv[1]), sys.argv[2:]
    common = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), WORLD_SIZE=str(count))
    common.update(LOCAL_WORLD_SIZE=str(count), GLOO_SOCKET_IFNAME="lo")
    ranks = []
    for rank in range(count):
        printed, errors = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
        environment = dict(common, RANK=str(rank), LOCAL_RANK=str(rank))
        ranks.append((subprocess.Popen(command, env=environment, stdout=printed, stderr=errors), printed, errors))
    deadline = time.monotonic() + LIMIT_SECONDS
    outputs, failed = [], False
    for rank, (process, printed, errors) in enumerate(ranks):
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        printed.seek(0)
        outputs.append([line for line in printed.read().splitlines() if not NOISE.match(line)])
        if process.returncode != 0:
            failed = True
            errors.seek(0)
            print("rank %d ended with %s\n%s" % (rank, process.returncode, errors.read()[-2000:]), file=sys.stderr)
    for index in range(max(map(len, outputs))):
        lines = [output[index] if index < len(output) else "nothing" for output in outputs]
        if len(set(lines)) == 1:
            print("all ranks: " + lines[0])
        else:
            for rank, line in enumerate(lines):
                print("rank %d: %s" % (rank, line))
    return 1 if failed else 0


sys.exit(main())
