#!/usr/bin/env python3
"""ci/bench torch-train --version VERSION [--json FILE] [-- OPTION...]

Training steps with Lockstep's DistributedDataParallel beside those with PyTorch's, over Gloo, and beside steps without a
reducer. All take turns in the same processes. The workloads are bare shapes (gradients without a model: those of resnet50, and
a thousand of 64 floats) and whole steps of the models of ci/torch train, with their optimizer.

    --ranks 2,4       how many ranks (default: 2)
    --rounds N        how many rounds count (default: 8)
    --only A,B        resnet50_shapes, small_1000, resnet50, resnet18, transformer, embedding (default: all but resnet50)
    --no-memory       leaves the memory out, which takes runs of its own
    --limit SECONDS   how long one workload may take (default: 600)
    --help            this text

A row has, of one mode:

    ms, ddp_ms, none_ms  the median step with Lockstep's class, with PyTorch's, and without a reducer; the slowest rank counts
    times_ddp            ms / ddp_ms, the median over the rounds, with the lower and the upper quartile
    overhead             (ms - none_ms) / (ddp_ms - none_ms)
    cpu                  what the processors of all ranks did, divided by what they did with PyTorch's class
    wrong                elements that are not what they should be

Mode rank_order is rank order beside the native order, both Lockstep's: there ddp_ms is the native order's. Memory is the
highest resident size of a rank that trains with one class alone, in MiB.

Exit code: 0 when every result was right; 65 when one was wrong; 130 after Ctrl-C; 1 otherwise. No time is judged.
"""

import os
import statistics
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, os.pardir, "reducer", "torch", folder) for folder in ("train", "testing")]

import programs  # noqa: E402
import ranks as processes  # noqa: E402
from programs import refuse  # noqa: E402

WORKLOADS = ("resnet50_shapes", "small_1000", "resnet50", "resnet18", "transformer", "embedding")
# mode: the subject, and what it is compared with
MODES = {
    "copying": ("lockstep", "ddp"),
    "views": ("lockstep-views", "ddp-views"),
    "dynamic": ("lockstep-dynamic", "ddp-dynamic"),
    "rank_order": ("lockstep-rank-order", "lockstep"),
}
WITHOUT_DYNAMIC = ("resnet50_shapes", "resnet50", "resnet18")  # detection costs by the parameter, not by the byte
OF_MEMORY = ("ddp", "lockstep", "ddp-views", "lockstep-views")


def modes_of(what):
    return [mode for mode in MODES if mode != "dynamic" or what not in WITHOUT_DYNAMIC]


def subjects_of(what):
    names = ["none"]
    for mode in modes_of(what):
        names += [name for name in MODES[mode] if name not in names]
    return names


def run_worker(arguments, what, world, rounds, subjects):
    """What each rank measured."""
    command = [arguments.python, "-W", "ignore", os.path.join(HERE, "torch_train_worker.py"), "--what", what]
    command += ["--rounds", str(rounds), "--only", ",".join(subjects)]
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as folder:
        ended = processes.run_ranks(command, world, folder, arguments.limit)
        told = [rank.result() for rank in ended]
        for rank, result in zip(ended, told):
            if rank.code != 0 or result is None:
                refuse("%s at %d ranks: rank %d ended with %s: %s" % (what, world, rank.rank, rank.code, rank.said()))
    return told


def of_slowest(told, subject):
    """The seconds of each step, of the rank that took longest."""
    return [max(step) for step in zip(*(result["subjects"][subject]["wall"] for result in told))]


def cpu_of(told, subject):
    return sum(statistics.median(result["subjects"][subject]["cpu"]) for result in told)


def ratios_by_round(ours, theirs, rounds):
    """The ratio of the medians of each round: both sides of a ratio ran under the same load."""
    length = len(ours) // rounds
    parts = [slice(turn * length, (turn + 1) * length) for turn in range(rounds)]
    return [statistics.median(ours[part]) / statistics.median(theirs[part]) for part in parts]


def quartiles(values):
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def row_of(what, world, mode, told, rounds):
    subject, beside = MODES[mode]
    ours, theirs, none = (of_slowest(told, name) for name in (subject, beside, "none"))
    ms, ddp_ms, none_ms = (1000 * statistics.median(steps) for steps in (ours, theirs, none))
    ratios = ratios_by_round(ours, theirs, rounds)
    low, high = quartiles(ratios)
    over = ddp_ms - none_ms
    return {
        "what": what,
        "ranks": world,
        "mode": mode,
        "ms": ms,
        "ddp_ms": ddp_ms,
        "none_ms": none_ms,
        "times_ddp": statistics.median(ratios),
        "low": low,
        "high": high,
        "overhead": (ms - none_ms) / over if over > 0 else None,
        "cpu": cpu_of(told, subject) / max(cpu_of(told, beside), 1e-9),
        "wrong": sum(result["subjects"][subject]["wrong"] for result in told),
    }


def print_row(row):
    overhead = "-" if row["overhead"] is None else "%.2f" % row["overhead"]
    print("%-16s %5d  %-11s %9.2f %9.2f %9.2f  %9.3f  %5.2f %5.2f  %8s %6.2f %6d" % (
        row["what"], row["ranks"], row["mode"], row["ms"], row["ddp_ms"], row["none_ms"], row["times_ddp"], row["low"],
        row["high"], overhead, row["cpu"], row["wrong"]), flush=True)  # fmt: skip


def print_titles():
    titles = ("workload", "ranks", "mode", "ms", "ddp_ms", "none_ms", "times_ddp", "low", "high", "overhead", "cpu", "wrong")
    print("%-16s %5s  %-11s %9s %9s %9s  %9s  %5s %5s  %8s %6s %6s" % titles)


def memory_of(arguments, what, world):
    """The peak of each subject that trains alone, in MiB."""
    peaks = {}
    for subject in OF_MEMORY:
        told = run_worker(arguments, what, world, 1, [subject])
        peaks[subject] = max(result["peak_kib"] for result in told) / 1024
    return {"what": what, "ranks": world, "mib": peaks}


def print_memory(row):
    mib = [row["mib"][name] for name in ("lockstep", "ddp", "lockstep-views", "ddp-views")]
    said = "memory %-16s %d ranks: copying %.0f MiB, DDP %.0f; views %.0f, DDP %.0f"
    print(said % (row["what"], row["ranks"], *mib), flush=True)


def parse(words):
    parser = programs.parser("ci/bench torch-train -- --help")
    parser.add_argument("--commit", default="")
    parser.add_argument("--ranks", default="2")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--only", default=",".join(what for what in WORKLOADS if what != "resnet50"))
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--limit", type=float, default=600)
    return parser.parse_args(words)


def settle(arguments):
    arguments.ranks = programs.numbers_of_ranks(arguments.ranks, 1)
    arguments.only = programs.chosen("--only", arguments.only, WORKLOADS)
    programs.expect_positive("--rounds", arguments.rounds)
    programs.expect_positive("--limit", arguments.limit)
    programs.expect_writable(arguments.json)


def main(words):
    arguments = parse(words)
    if arguments.help:
        print(__doc__.strip())
        return 0
    settle(arguments)
    rows, memory = [], []
    print("PyTorch %s, commit %s, %d processors, load %.1f" % (
        arguments.version or "?", arguments.commit[:8] or "?", os.cpu_count(), os.getloadavg()[0]))  # fmt: skip
    print_titles()
    for what in arguments.only:
        for world in arguments.ranks:
            told = run_worker(arguments, what, world, arguments.rounds, subjects_of(what))
            for mode in modes_of(what):
                rows.append(row_of(what, world, mode, told, arguments.rounds))
                print_row(rows[-1])
    if not arguments.no_memory:
        for what in arguments.only:
            if what in ("resnet50_shapes", "small_1000"):
                memory.append(memory_of(arguments, what, arguments.ranks[0]))
                print_memory(memory[-1])
    programs.write_json(arguments.json, {"version": arguments.version, "commit": arguments.commit,
                                         "processors": os.cpu_count(), "rows": rows, "memory": memory})
    wrong = sum(row["wrong"] for row in rows)
    if wrong:
        print("%d elements are wrong" % wrong, file=sys.stderr)
    return 65 if wrong else 0


if __name__ == "__main__":
    programs.run("ci/bench torch-train", main)
