"""worker.py --model M --loop L --reducer R --steps N --out FILE: one rank of a run of ci/torch train; run.py starts it.

R is ddp (PyTorch's own class), lockstep, lockstep-rank (in rank order), or one: a single process that adds the gradients
of --world ranks in order. FILE gets what the loop shows of itself, as JSON.
"""

import argparse
import json
import os
import sys
import warnings

warnings.simplefilter("ignore")


def options_of(reducer):
    return {"order": "rank"} if reducer == "lockstep-rank" else {}


def run(arguments):
    import torch

    torch.set_num_threads(1)
    if arguments.reducer.startswith("lockstep"):
        import lockstep.torch

        lockstep.torch.replace_ddp()
    import loops
    import models

    task, watch = models.TASKS[arguments.model], loops.Watch()
    if arguments.reducer == "one":
        model = loops.one_process(task, arguments.steps, watch, arguments.world)
    else:
        model = loops.LOOPS[arguments.loop](task, arguments.steps, watch, options_of(arguments.reducer))
    return watch.told(model)


def main(words):
    parser = argparse.ArgumentParser(usage=__doc__)
    for name in ("--model", "--loop", "--reducer", "--out"):
        parser.add_argument(name, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--world", type=int, default=1)
    arguments = parser.parse_args(words)
    told = run(arguments)
    with open(arguments.out, "w", encoding="utf-8") as file:
        json.dump(told, file)
    sys.stdout.flush()
    os._exit(0)  # what a library left behind must not keep a rank that is done


if __name__ == "__main__":
    main(sys.argv[1:])
