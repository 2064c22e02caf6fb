"""What PyTorch's reducer adds to a step on a card: the counterpart of cuda_reducer_benchmark.

One rank, and a communication hook that is over at once, so that nothing but the reducer is added;
one node of the graph gives every parameter its gradient, which is added to the one that is there.
Workloads and modes are those of the other program: resnet50 (161 parameters), small_1000,
one_tensor; no reducer, gradients copied, gradients as views. Times are medians of 50 steps, until
the card is done, in ms. --on-host tries the script out without a card.
"""
import argparse
import json
import os
import statistics
import tempfile
import time

import torch
import torch.distributed as dist


def resnet50():
    sizes = [64 * 3 * 7 * 7, 64, 64]
    inside = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            sizes += [inside * width, width, width, width * width * 9, width, width]
            sizes += [width * width * 4, width * 4, width * 4]
            if block == 0:
                sizes += [inside * width * 4, width * 4, width * 4]
            inside = width * 4
    return sizes + [2048 * 1000, 1000]


WORKLOADS = {"resnet50": resnet50(), "small_1000": [64] * 1000, "one_tensor": [16 << 20]}


class Arriving(torch.autograd.Function):
    """One node that has a gradient for every parameter."""

    @staticmethod
    def forward(ctx, arriving, *parameters):
        ctx.arriving = arriving
        return parameters[0].new_zeros(())

    @staticmethod
    def backward(ctx, gradient):
        return (None, *ctx.arriving)


class Model(torch.nn.Module):
    def __init__(self, sizes, device):
        super().__init__()
        self.all = torch.nn.ParameterList(
            [torch.nn.Parameter(torch.zeros(size, device=device)) for size in sizes])
        self.arriving = [torch.zeros(size, device=device) for size in sizes]

    def forward(self):
        return Arriving.apply(self.arriving, *self.all)


def at_once(state, bucket):
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def measure(sizes, mode, device, steps):
    model = Model(sizes, device)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    run = model
    if mode != "no_reducer":
        run = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=mode == "view")
        run.register_comm_hook(None, at_once)
    finish = torch.cuda.synchronize if device == "cuda" else lambda: None
    whole, host = [], []
    for step in range(steps + 5):
        finish()
        start = time.perf_counter()
        run().backward()
        middle = time.perf_counter()
        finish()
        if step >= 5:
            whole.append((time.perf_counter() - start) * 1e3)
            host.append((middle - start) * 1e3)
    return {"ms": statistics.median(whole), "host_ms": statistics.median(host)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--on-host", action="store_true")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--only", choices=sorted(WORKLOADS))
    options = parser.parse_args()
    device = "cpu" if options.on_host else "cuda"
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        figures = {
            "torch": torch.__version__,
            "device": torch.cuda.get_device_name() if device == "cuda" else "the host",
            "steps": {},
        }
        print(f"{'torch ' + torch.__version__:<34}{'host_ms':>10}{'ms':>10}")
        for name, sizes in WORKLOADS.items():
            if options.only not in (None, name):
                continue
            for mode in ("no_reducer", "copying", "view"):
                measured = measure(sizes, mode, device, options.steps)
                figures["steps"][f"{name}/{mode}"] = measured
                print(f"{'Step/' + name + '/' + mode:<34}{measured['host_ms']:>10.4f}{measured['ms']:>10.4f}")
        dist.destroy_process_group()
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump(figures, out, indent=1)


if __name__ == "__main__":
    main()
