"""torch_train_worker.py --what W --rounds N --out FILE [--only SUBJECT]: one rank of ci/bench torch-train.

All subjects train copies of one model in this process, and take turns: in each round every subject makes some steps. FILE gets
the seconds of each step that counts, of the wall clock and of this process's processors, and what the results came to.
"""

import argparse
import json
import os
import resource
import sys
import time
import warnings

warnings.simplefilter("ignore")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, os.pardir, "reducer", "torch", "train"))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

# subject: the class that wraps the model, and the options of its constructor
SUBJECTS = {
    "none": (None, {}),
    "ddp": ("ddp", {}),
    "lockstep": ("lockstep", {}),
    "ddp-views": ("ddp", {"gradient_as_bucket_view": True}),
    "lockstep-views": ("lockstep", {"gradient_as_bucket_view": True}),
    "ddp-dynamic": ("ddp", {"find_unused_parameters": True}),
    "lockstep-dynamic": ("lockstep", {"find_unused_parameters": True}),
    "lockstep-rank-order": ("lockstep", {"order": "rank"}),
}


class Given(torch.autograd.Function):
    """An output whose backward gives each parameter a tensor of its own, filled with one number: gradients without a model."""

    @staticmethod
    def forward(context, value, start, *parameters):
        context.value, context.shapes = value, [parameter.shape for parameter in parameters]
        return start.clone()

    @staticmethod
    def backward(context, gradient):
        return (None, gradient, *[torch.full(shape, context.value) for shape in context.shapes])


class Chained(nn.Module):
    """Parameters whose gradients arrive one after the other, the last one first, as those of layers do."""

    def __init__(self, shapes, value):
        super().__init__()
        self.value = value
        self.parts = nn.ParameterList([nn.Parameter(torch.zeros(shape)) for shape in shapes])

    def forward(self, start):
        for part in self.parts:
            start = Given.apply(self.value, start, part)
        return start


class AtOnce(Chained):
    """The same parameters, below one node of the graph, so that the engine's own work is small."""

    def forward(self, start):
        return Given.apply(self.value, start, *self.parts)


def shapes_of_resnet50():
    """The 161 parameters of resnet50, from its description: a stem, four groups of bottlenecks, a classifier."""
    shapes, before = [(64, 3, 7, 7), (64,), (64,)], 64
    for width, count in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(count):
            convolutions = [(width, before, 1, 1), (width, width, 3, 3), (4 * width, width, 1, 1)]
            if block == 0:
                convolutions.append((4 * width, before, 1, 1))
            for shape in convolutions:
                shapes += [shape, (shape[0],), (shape[0],)]
            before = 4 * width
    return [*shapes, (1000, before), (1000,)]


class Shapes:
    """A workload of bare shapes: a forward and a backward, and no optimizer."""

    def __init__(self, make):
        self.make = make

    def build(self):
        return self.make(float(dist.get_rank() + 1))

    def prepare(self, model):
        start, parameters = torch.zeros((), requires_grad=True), list(model.parameters())

        def step(wrapped, _number):
            wrapped(start).backward()

        def clear():
            for parameter in parameters:
                parameter.grad = None

        return step, clear

    def wrong(self, model):
        """How many elements are not the mean of what the ranks gave."""
        world = dist.get_world_size()
        mean = sum(torch.tensor(rank + 1.0) * torch.tensor(1 / world) for rank in range(world))
        return sum(int((parameter.grad != mean).sum()) for parameter in model.parameters())


class Whole:
    """A workload of whole training steps of a model of ci/torch train."""

    def __init__(self, name):
        import models

        self.task = models.TASKS[name]

    def build(self):
        return self.task.build()

    def prepare(self, model):
        optimizer, rank = self.task.optimizer(model), dist.get_rank()
        batches = [self.task.batch(number, rank) for number in range(4)]

        def step(wrapped, number):
            torch.manual_seed(number)
            self.task.loss(wrapped, batches[number % 4]).backward()
            optimizer.step()
            optimizer.zero_grad()

        return step, lambda: None

    def wrong(self, model):
        """Whether the parameters differ from those of rank 0."""
        count = 0
        for parameter in model.parameters():
            other = parameter.detach().clone()
            dist.broadcast(other, 0)
            count += int((other != parameter).sum())
        return count


WORKLOADS = {  # a workload, and its steps in a round, of which the first does not count
    "resnet50_shapes": (lambda: Shapes(lambda value: Chained(shapes_of_resnet50(), value)), 4),
    "small_1000": (lambda: Shapes(lambda value: AtOnce([(64,)] * 1000, value)), 11),
    "resnet50": (lambda: Whole("resnet50"), 3),
    "resnet18": (lambda: Whole("resnet18"), 4),
    "transformer": (lambda: Whole("transformer"), 6),
    "embedding": (lambda: Whole("embedding"), 11),
}


class Subject:
    def __init__(self, name, workload):
        kind, options = SUBJECTS[name]
        self.model = workload.build()
        self.step, self.clear = workload.prepare(self.model)
        self.wrapped = wrap(kind, self.model, options)
        self.wall, self.cpu, self.made = [], [], 0

    def run(self, steps, counts):
        for index in range(steps):
            self.clear()
            dist.barrier()
            cpu, wall = time.process_time(), time.perf_counter()
            self.step(self.wrapped, self.made)
            if counts and index > 0:
                self.wall.append(time.perf_counter() - wall)
                self.cpu.append(time.process_time() - cpu)
            self.made += 1


def wrap(kind, model, options):
    if kind is None:
        return model
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(model, **options)
    import lockstep.torch

    return lockstep.torch.DistributedDataParallel(model, **options)


def measure(arguments):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    make, steps = WORKLOADS[arguments.what]
    workload = make()
    names = arguments.only.split(",")
    subjects = {name: Subject(name, workload) for name in names}
    for turn in range(arguments.rounds + 1):  # the first round warms up: buckets are rebuilt in it
        for index in range(len(names)):
            subjects[names[(index + turn) % len(names)]].run(steps, counts=turn > 0)
    told = {}
    for name, subject in subjects.items():
        wrong = workload.wrong(subject.model) if name != "none" else 0
        told[name] = {"wall": subject.wall, "cpu": subject.cpu, "wrong": wrong}
    dist.barrier()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"subjects": told, "peak_kib": peak}


def main(words):
    parser = argparse.ArgumentParser(usage=__doc__)
    for name in ("--what", "--out", "--only"):
        parser.add_argument(name, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    arguments = parser.parse_args(words)
    told = measure(arguments)
    with open(arguments.out, "w", encoding="utf-8") as file:
        json.dump(told, file)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
