#!/usr/bin/env python3
"""ci/torch train --version VERSION [OPTION...]

Trains small models with Lockstep's DistributedDataParallel, beside PyTorch's own and beside one process, and prints what is bit
for bit equal to what: a resnet of torchvision, a BERT of transformers, and an embedding with sparse gradients, each in a plain
loop, in Lightning Fabric and Trainer, in Accelerate, and the BERT in transformers' Trainer. Then it kills a rank in the middle
of a backward: all others have to name it in that step, and the loop has to go on with those that are left.

    --ranks 2,4       how many ranks (default: 2,4)
    --steps N         how many steps (default: 20)
    --models A,B      resnet18, resnet50, transformer, embedding (default: all but resnet50)
    --loops A,B       plain, fabric, trainer, accelerate, transformers, killed (default: all)
    --limit SECONDS   how long one run may take (default: 300)
    --json FILE       also writes the rows there
    --help            this text

A row of the table is one model in one loop with so many ranks. Its columns:

    ranks       whether all ranks have the same gradients in every step, and the same parameters at the end
    DDP         whether these are those of PyTorch's class, with each rank's buffers in the last step. At 2 ranks they have
                to be: a sum of two has one order. At more the table says how many of the steps have equal gradients
    one process whether training in rank order (order="rank") comes to the bits of one process that adds the ranks' scaled
                gradients in their order: then the number of ranks is no part of the result. For the plain loop

Exit code: 0 when all that has to be equal is equal; 1 otherwise, and for bad usage; 130 after Ctrl-C.
"""

import itertools
import os
import sys
import tempfile

import ranks as processes

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, os.pardir, "testing"))

import programs  # noqa: E402
from programs import refuse  # noqa: E402

MODELS = ("resnet18", "resnet50", "transformer", "embedding")
LOOPS = ("plain", "fabric", "trainer", "accelerate", "transformers", "killed")
LOCKSTEP = "lockstep.torch."
NAMES_OF_DDP = "torch.nn.parallel.distributed.DistributedDataParallel"


class Failed(Exception):
    """A run that did not end well, in one line."""


# --- runs ------------------------------------------------------------------------------------------------------------


class Runs:
    """Runs the worker, each combination once."""

    def __init__(self, arguments):
        self.arguments, self.done = arguments, {}

    def get(self, model, loop, reducer, world):
        key = model, loop, reducer, world
        if key not in self.done:
            self.done[key] = self.run(*key)
        return self.done[key]

    def run(self, model, loop, reducer, world):
        command = [self.arguments.python, "-W", "ignore", os.path.join(HERE, "worker.py"), "--model", model, "--loop", loop]
        command += ["--reducer", reducer, "--steps", str(self.arguments.steps), "--world", str(world)]
        count = 1 if reducer == "one" else world
        name = "%s, %s, %s, %d ranks" % (model, loop, reducer, world)
        with tempfile.TemporaryDirectory(prefix="lockstep-train-") as folder:
            ended = processes.run_ranks(command, count, folder, self.arguments.limit)
            told = [rank.result() for rank in ended]
            for rank, result in zip(ended, told):
                if rank.code != 0 or result is None:
                    raise Failed("%s: rank %d ended with %s: %s" % (name, rank.rank, rank.code, rank.said()))
        check_class(name, reducer, told)
        print("%s: %d steps seen" % (name, len(told[0]["gradients"])), file=sys.stderr, flush=True)
        return told


def check_class(name, reducer, told):
    """A library that wraps with another class than the one that is looked at would be compared with itself."""
    for result in told:
        for wrapper in result["classes"]:
            if (wrapper == NAMES_OF_DDP) != (reducer == "ddp") or (reducer != "ddp" and not wrapper.startswith(LOCKSTEP)):
                raise Failed("%s: the model was wrapped by %s" % (name, wrapper))
        if not result["classes"] and reducer != "one":
            raise Failed("%s: nothing wrapped the model" % name)
        if not result["gradients"]:
            raise Failed("%s: the loop made no step" % name)


# --- what is equal ---------------------------------------------------------------------------------------------------


def first_difference(one, other):
    """What differs first between two results, or nothing."""
    for step, (a, b) in enumerate(itertools.zip_longest(one["gradients"], other["gradients"])):
        if a != b:
            return "gradients of step %d" % step
    return "parameters" if one["parameters"] != other["parameters"] else ""


def ranks_differ(told):
    for rank, result in enumerate(told[1:], 1):
        what = first_difference(told[0], result)
        if what:
            return "ranks 0 and %d: %s" % (rank, what)
    return ""


def beside_ddp(told, ddp):
    """What differs from PyTorch's class, buffers of each rank included."""
    for rank, (one, other) in enumerate(zip(told, ddp)):
        what = first_difference(one, other) or ("buffers" if one["buffers"] != other["buffers"] else "")
        if what:
            return "rank %d: %s" % (rank, what)
    return ""


def equal_steps(told, ddp):
    pairs = list(zip(told[0]["gradients"], ddp[0]["gradients"]))
    return "%d of %d steps" % (sum(one == other for one, other in pairs), len(pairs))


def beside_one_process(told, one):
    what = first_difference(told[0], one[0])
    return what or ("buffers of rank 0" if told[0]["buffers"] != one[0]["buffers"] else "")


def cell(difference):
    return "differ (%s)" % difference if difference else "equal"


def compare(runs, model, loop, world):
    """A row of the table."""
    row = {"model": model, "loop": loop, "ranks": world, "failed": ""}
    try:
        told = runs.get(model, loop, "lockstep", world)
        ddp = runs.get(model, loop, "ddp", world)
        differ = [ranks_differ(told)]
        row["among_ranks"] = cell(differ[0])
        if world == 2:
            differ.append(beside_ddp(told, ddp))
            row["beside_ddp"] = cell(differ[-1])
        else:
            row["beside_ddp"] = equal_steps(told, ddp)
        row["one_process"] = "-"
        if loop == "plain":
            ordered = runs.get(model, loop, "lockstep-rank", world)
            differ += [ranks_differ(ordered), beside_one_process(ordered, runs.get(model, loop, "one", world)[:1])]
            row["one_process"] = cell(differ[-2] or differ[-1])
        row["failed"] = "; ".join(one for one in differ if one)
    except Failed as failed:
        row["failed"] = str(failed)
    return row


def print_rows(rows):
    names = ("model", "loop", "ranks", "among_ranks", "beside_ddp", "one_process")
    titles = ("model", "loop", "ranks", "among the ranks", "beside DDP", "rank order beside one process")
    programs.print_table(titles, [[row.get(name, "FAILED") for name in names] for row in rows])


# --- a rank is killed ------------------------------------------------------------------------------------------------


def kill_one(arguments, world):
    """A row that says what the ranks said when one of them was killed, and how far those went that were left."""
    victim = 1
    row = {"ranks": world, "victim": victim, "failed": ""}
    command = [arguments.python, "-W", "ignore", os.path.join(HERE, "killed_rank.py"), "--victim", str(victim)]
    command += ["--steps", str(arguments.steps)]
    with tempfile.TemporaryDirectory(prefix="lockstep-train-") as folder:
        ended = processes.run_ranks(command, world, folder, arguments.limit, may_die=(victim,))
        left = [rank for rank in ended if rank.rank != victim]
        told = [rank.result() for rank in left]
        for rank, result in zip(left, told):
            if rank.code != 0 or result is None:
                row["failed"] = "rank %d ended with %s: %s" % (rank.rank, rank.code, rank.said())
                return row
    row.update(judge_killed(told, victim, world, arguments.steps))
    return row


def judge_killed(told, victim, world, steps):
    """Each rank that is left has named the victim in the step of its death, and all have the same bits at the end."""
    row = {"said": [result["error"] for result in told], "failed": ""}
    for result in told:
        if result["suspect"] != victim or result["failed_step"] != result["step_of_death"]:
            row["failed"] = "rank %d named rank %s in step %s: %s" % (
                result["rank"], result["suspect"], result["failed_step"], result["error"])  # fmt: skip
        elif result["steps"] != steps or result["ranks_left"] != world - 1:
            row["failed"] = "rank %d ended at step %s with %s ranks" % (result["rank"], result["steps"], result["ranks_left"])
        elif result["parameters"] != told[0]["parameters"]:
            row["failed"] = "rank %d and rank %d end with other parameters" % (told[0]["rank"], result["rank"])
    return row


def print_killed(rows):
    for row in rows:
        if row["failed"]:
            print("killed rank %d of %d: FAILED: %s" % (row["victim"], row["ranks"], row["failed"]))
            continue
        left = row["ranks"] - 1
        who = "1 rank goes" if left == 1 else "%d ranks go" % left
        print("killed rank %d of %d: named by all others in that step; %s on, with equal bits. One said: %s" % (
            row["victim"], row["ranks"], who, shortened(row["said"][0])))  # fmt: skip


def shortened(text, limit=160):
    line = text.split("\n")[0]
    return line if len(line) <= limit else line[:limit] + " ..."


# --- the command -----------------------------------------------------------------------------------------------------


def parse(words):
    parser = programs.parser("ci/torch train --help")
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--models", default="resnet18,transformer,embedding")
    parser.add_argument("--loops", default=",".join(LOOPS))
    parser.add_argument("--limit", type=float, default=300)
    return parser.parse_args(words)


def settle(arguments):
    arguments.ranks = programs.numbers_of_ranks(arguments.ranks, 2)
    arguments.models = programs.chosen("--models", arguments.models, MODELS)
    arguments.loops = programs.chosen("--loops", arguments.loops, LOOPS)
    if arguments.steps < 10:
        refuse("--steps is %d: give 10 or more, so that each loop makes several steps" % arguments.steps)
    programs.expect_positive("--limit", arguments.limit)
    programs.expect_writable(arguments.json)


def main(words):
    arguments = parse(words)
    if arguments.help:
        print(__doc__.strip())
        return 0
    settle(arguments)
    runs, rows = Runs(arguments), []
    for model, loop in itertools.product(arguments.models, arguments.loops):
        if loop == "killed" or (loop == "transformers" and model != "transformer"):
            continue
        for world in arguments.ranks:
            rows.append(compare(runs, model, loop, world))
            said = rows[-1]["failed"] or "all that has to be equal is"
            print("%s, %s, %d ranks: %s" % (model, loop, world, said), file=sys.stderr, flush=True)
            runs.done.clear()
    killed = [kill_one(arguments, world) for world in arguments.ranks] if "killed" in arguments.loops else []
    if rows:
        print_rows(rows)
    print_killed(killed)
    programs.write_json(arguments.json, {"version": arguments.version, "steps": arguments.steps, "rows": rows, "killed": killed})
    failed = [row for row in rows + killed if row["failed"]]
    for row in failed:
        where = "%s, %s" % (row["model"], row["loop"]) if "model" in row else "killed"
        print("FAILED: %s, %d ranks: %s" % (where, row["ranks"], row["failed"]))
    equal = len(rows) + len(killed) - len(failed)
    print("%d of %d rows have all that has to be equal" % (equal, len(rows) + len(killed)))
    return 1 if failed else 0


if __name__ == "__main__":
    programs.run("ci/torch train", main)
