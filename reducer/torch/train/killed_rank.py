"""killed_rank.py --victim K --steps N --out FILE: a rank of ci/torch train, one of which kills itself in mid-backward.

The others must get an error that names it, in that step, and go on without it: `survive` is how.
"""

import argparse
import json
import os
import signal
import sys
import warnings

warnings.simplefilter("ignore")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import lockstep.torch  # noqa: E402
import loops  # noqa: E402
import models  # noqa: E402


def survive(model, dead, rank, world, port):
    """Goes on with the ranks that are left, and returns this rank's new number."""
    dist.destroy_process_group()
    rank -= rank > dead
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:%d" % port, rank=rank, world_size=world - 1)
    model.reset()
    return rank


def kill_in_backward(module, is_due):
    """The process ends when the gradient of a parameter in the middle of the model arrives, and that is due."""
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]

    def end(_gradient):
        if is_due():
            os.kill(os.getpid(), signal.SIGKILL)

    parameters[len(parameters) // 2].register_hook(end)


def run(victim, steps):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    told = {"rank": rank, "suspect": None, "failed_step": None, "step_of_death": steps // 2, "error": ""}
    task, step = models.TASKS["transformer"], 0
    module = task.build()
    if rank == victim:
        kill_in_backward(module, lambda: step == told["step_of_death"])
    model = lockstep.torch.DistributedDataParallel(module, timeout=30)
    optimizer = task.optimizer(module)
    while step < steps:
        optimizer.zero_grad()
        try:
            task.loss(model, task.batch(step, rank)).backward()
        except lockstep.torch.LockstepError as error:
            told.update(suspect=error.suspect, failed_step=step, error=str(error))
            rank = survive(model, error.suspect, rank, world, int(os.environ["LOCKSTEP_SECOND_PORT"]))
            continue  # the step again, with the ranks that are left
        optimizer.step()
        step += 1
    told.update(steps=step, ranks_left=dist.get_world_size(), parameters=loops.digest(module.parameters()))
    dist.barrier()
    return told


def main(words):
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--victim", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args(words)
    told = run(arguments.victim, arguments.steps)
    with open(arguments.out, "w", encoding="utf-8") as file:
        json.dump(told, file)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
