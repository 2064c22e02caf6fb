#!/usr/bin/env python3
"""cost.py [--ranks N] [--steps N]: what the witness costs a training step of the shapes of ResNet-50, over Gloo.

A step is forward, backward with its all-reduces, and SGD, of a model that has the 161 parameters of ResNet-50 (25.6 M
float32) and no layers: of a real network the step takes longer, and the witness the same. Steps with and without the
witness take turns, so that both meet the same load. Prints the medians of rank 0, and of the ratio of neighbours.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lockstep_witness


def resnet50():
    """The shapes of its parameters, in their order."""
    shapes = [(64, 3, 7, 7), (64,), (64,)]
    inputs = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            layers = [(width, inputs, 1, 1), (width, width, 3, 3), (4 * width, width, 1, 1)]
            if block == 0:
                layers.append((4 * width, inputs, 1, 1))
            for layer in layers:
                shapes += [layer, layer[:1], layer[:1]]
            inputs = 4 * width
    return shapes + [(1000, 2048), (1000,)]


class Shapes(torch.nn.Module):
    def __init__(self, shapes):
        super().__init__()
        self.values = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(shape)) for shape in shapes])

    def forward(self, factor):
        return sum((value * factor).sum() for value in self.values)


def measure(rank, ranks, steps, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=ranks)
    shapes = resnet50()
    model = DistributedDataParallel(Shapes(shapes), gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    witness = lockstep_witness.watch(model)
    taken = {"step without": [], "step with": [], "the witness": []}
    for step in range(2 * steps + 4):
        kind = ("step without", "step with")[step % 2]
        dist.barrier()
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=False)
        model(1.0 + rank).backward()
        checking = time.perf_counter()
        if kind == "step with":
            witness.check()
        checked = time.perf_counter()
        optimizer.step()
        if step >= 4:
            taken[kind].append(1000 * (time.perf_counter() - begin))
            if kind == "step with":
                taken["the witness"].append(1000 * (checked - checking))
    if rank == 0:
        elements = sum(parameter.numel() for parameter in model.parameters())
        print(
            "PyTorch %s, %d ranks, %d parameters, %d elements, %d steps each"
            % (torch.__version__, ranks, len(shapes), elements, steps)
        )
        for name, values in taken.items():
            print("%-13s %8.1f ms" % (name, statistics.median(values)))
        ratios = [with_it / without for without, with_it in zip(taken["step without"], taken["step with"])]
        print("with / without %7.3f" % statistics.median(ratios))
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=40)
    arguments = parser.parse_args()
    if arguments.ranks < 1 or arguments.steps < 1:
        parser.error("--ranks and --steps are numbers from 1 on")
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        multiprocessing.spawn(measure, (arguments.ranks, arguments.steps, store), nprocs=arguments.ranks)
