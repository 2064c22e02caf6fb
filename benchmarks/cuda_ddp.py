"""What PyTorch's reducer adds to a step on a GPU: the counterpart of cuda_reducer_benchmark.

One rank, and a communication hook that is over at once, so that nothing but the reducer is added;
one node of the graph gives every parameter its gradient, which is added to the one that is there.
Workloads and modes are those of the other program: resnet50 (161 parameters), small_1000,
one_tensor; no reducer, gradients copied, gradients as views. Times are medians of 50 steps, until
the GPU is done, in ms. --on-host tries the script out without a GPU.

--sockets: two ranks, as processes that share the GPU, whose gradients NCCL averages through sockets
of the loopback device, as in the other program's --sockets. Only rank 0 measures, 20 steps. With
--on-host, too, it is Gloo that averages.

Exit code: 0, 65 for a wrong result, 77 where there is no CUDA device, 1 for other failures.
"""
import argparse
import datetime
import json
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing


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

# As cuda_reducer_benchmark has them: each rank a machine of its own, or NCCL refuses two on a GPU.
NCCL_VARIABLES = {
    "NCCL_P2P_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1",
    "NCCL_NET": "Socket",
    "NCCL_NET_PLUGIN": "none",
    "NCCL_IB_DISABLE": "1",
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_MNNVL_ENABLE": "0",
    "NCCL_CUMEM_HOST_ENABLE": "0",
    "NCCL_RUNTIME_CONNECT": "0",
    "NCCL_RAS_ENABLE": "0",
    "CUDA_MODULE_LOADING": "EAGER",
}


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


def with_reducer(model, mode, ranks):
    run = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=mode == "view")
    if ranks == 1:
        run.register_comm_hook(None, at_once)
    return run


def check(device, rank, ranks):
    """Whether two steps add up to twice the average of the ranks' gradients; it is exact."""
    for mode in ("copying", "view"):
        model = Model([1000, 3, 70000, 64, 1], device)
        for index, (parameter, arriving) in enumerate(zip(model.parameters(), model.arriving)):
            parameter.grad = torch.zeros_like(parameter)
            arriving.fill_(index + 1 + 2 * rank)
        run = with_reducer(model, mode, ranks)
        for _ in range(2):
            run().backward()
        for index, parameter in enumerate(model.parameters()):
            if not bool((parameter.grad == 2 * (index + ranks)).all()):
                print(f"{mode}: the gradient of parameter {index} is wrong", file=sys.stderr)
                sys.exit(65)


def measure(sizes, mode, device, steps, ranks=1):
    model = Model(sizes, device)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    run = model
    if mode != "no_reducer":
        run = with_reducer(model, mode, ranks)
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


def measure_all(options, device, steps, ranks, tell, keep):
    """Measures all workloads and modes; `tell` prints a line, and `keep` gets the figures after each."""
    figures = {
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if device == "cuda" else "the host",
        "ranks": ranks,
        "steps": {},
    }
    tell(f"{'torch ' + torch.__version__ + ', ranks: ' + str(ranks):<34}{'host_ms':>10}{'ms':>10}")
    for name, sizes in WORKLOADS.items():
        if options.only not in (None, name):
            continue
        for mode in ("no_reducer", "copying", "view"):
            measured = measure(sizes, mode, device, steps, ranks)
            figures["steps"][f"{name}/{mode}"] = measured
            tell(f"{'Step/' + name + '/' + mode:<34}{measured['host_ms']:>10.4f}{measured['ms']:>10.4f}")
            keep(figures)


def write(figures, file):
    """In place of what there was, at once: the script may be ended at any time."""
    if file:
        with open(file + ".new", "w", encoding="utf-8") as out:
            json.dump(figures, out, indent=1)
        os.replace(file + ".new", file)


def run_alone(options, device):
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        check(device, 0, 1)
        measure_all(options, device, options.steps or 50, 1, print, lambda figures: write(figures, options.json))
        dist.destroy_process_group()


def run_rank(rank, options, device, folder, job):
    os.environ.update(NCCL_VARIABLES, NCCL_HOSTID=f"benchmark-{job}-{rank}", GLOO_SOCKET_IFNAME="lo")
    if device == "cuda":
        torch.cuda.set_device(0)
    dist.init_process_group("nccl" if device == "cuda" else "gloo", init_method=f"file://{folder}/store",
                            rank=rank, world_size=2, timeout=datetime.timedelta(seconds=60))
    check(device, rank, 2)

    def keep(figures):
        if device == "cuda":
            figures["nccl"] = ".".join(str(part) for part in torch.cuda.nccl.version())
        write(figures, options.json)

    nothing = lambda ignored: None  # noqa: E731
    tell = print if rank == 0 else nothing
    measure_all(options, device, options.steps or 20, 2, tell, keep if rank == 0 else nothing)
    dist.destroy_process_group()


def run_two(options, device):
    with tempfile.TemporaryDirectory() as folder:
        try:
            multiprocessing.spawn(run_rank, (options, device, folder, os.getpid()), nprocs=2)
        except multiprocessing.ProcessExitedException as ended:
            sys.exit(65 if ended.exit_code == 65 else f"a rank ended: {ended}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--on-host", action="store_true")
    parser.add_argument("--sockets", action="store_true")
    parser.add_argument("--steps", type=int, help="50, or 20 with --sockets")
    parser.add_argument("--only", choices=sorted(WORKLOADS))
    options = parser.parse_args()
    if not options.on_host and not torch.cuda.is_available():
        print("skipped: no CUDA device (torch sees none: look at nvidia-smi, and at torch.version.cuda,"
              f" which is {torch.version.cuda})", file=sys.stderr)
        sys.exit(77)
    if options.sockets and not options.on_host and not dist.is_nccl_available():
        print("skipped: this torch was built without NCCL; install one with it", file=sys.stderr)
        sys.exit(77)
    device = "cpu" if options.on_host else "cuda"
    (run_two if options.sockets else run_alone)(options, device)


if __name__ == "__main__":
    main()
