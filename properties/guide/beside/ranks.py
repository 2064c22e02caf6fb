"""Runs a function on two ranks over Gloo, and returns what rank 0 returned. Used by the examples of this folder."""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../subject/python"))


def train(wrap, steps, has_free_dropout=False):
    """Trains a small model on this rank; returns its parameters. With a free dropout what it drops is drawn without a seed."""
    torch.manual_seed(1)
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    data = torch.randn(steps, 2 * 8, 4)
    if has_free_dropout:
        module.append(torch.nn.Dropout(0.5))
        torch.seed()
    wrapped = wrap(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for batch in data:
        optimizer.zero_grad()
        own = batch.chunk(dist.get_world_size())[dist.get_rank()]
        wrapped(own).square().mean().backward()
        if hasattr(wrapped, "after_backward"):
            wrapped.after_backward()
        optimizer.step()
    return [parameter.detach() for parameter in module.parameters()]


def one_rank(rank, world, store, function, out):
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=world)
    result = function()
    if rank == 0:
        torch.save(result, out)
    dist.barrier()
    dist.destroy_process_group()


def on_ranks(world, function):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "result")
        mp.spawn(one_rank, (world, os.path.join(folder, "store"), function, out), nprocs=world)
        return torch.load(out)
