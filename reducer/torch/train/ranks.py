"""Starts the ranks of a run as processes, and collects what each of them writes."""

import json
import os
import signal
import socket
import subprocess
import time


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment(rank, world, port, second_port):
    """What torchrun would set for a rank, and what keeps libraries on the CPU and off the network."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "ACCELERATE_"))}
    return {
        **kept,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "LOCKSTEP_SECOND_PORT": str(second_port),
        "TORCHELASTIC_RUN_ID": "lockstep",
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "ACCELERATE_USE_CPU": "true",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


class Rank:
    """One process. Its standard output and errors go to `log`, and what it returns to `result`, as JSON."""

    def __init__(self, rank, command, environment, folder):
        self.rank, self.code = rank, None
        self.log = os.path.join(folder, "rank%d.log" % rank)
        self.file = os.path.join(folder, "rank%d.json" % rank)
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [*command, "--out", self.file], stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )

    def poll(self):
        self.code = self.process.poll()
        return self.code

    def end(self):
        """Ends the rank and all that it started."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.code = self.process.wait()

    def result(self):
        try:
            with open(self.file, encoding="utf-8") as file:
                return json.load(file)
        except (OSError, ValueError):
            return None

    def said(self):
        with open(self.log, errors="replace", encoding="utf-8") as log:
            lines = [line.strip() for line in log if line.strip()]
        return next((line for line in reversed(lines) if "Error" in line), lines[-1] if lines else "nothing")


def run_ranks(command, world, folder, limit, may_die=()):
    """Runs the command once for each rank, and returns the ranks when all have ended or the limit in seconds has passed.

    When a rank fails that is not among `may_die`, the others get ten more seconds.
    """
    os.makedirs(folder, exist_ok=True)
    ports = free_port(), free_port()
    ranks, end = [], time.monotonic() + limit
    try:
        for rank in range(world):
            ranks.append(Rank(rank, command, environment(rank, world, *ports), folder))
        while any(rank.poll() is None for rank in ranks) and time.monotonic() < end:
            if any(rank.code not in (None, 0) and rank.rank not in may_die for rank in ranks):
                end = min(end, time.monotonic() + 10)
            time.sleep(0.05)
    finally:
        for rank in ranks:
            rank.end()
    return ranks
