"""A PyTorch model that two ranks train with lockstep.torch over NCCL, beside PyTorch's own reducer.

The ranks are processes that share the GPU, and NCCL averages through sockets, as in cuda_ddp.py --sockets. A small
convolution net trains some steps with each reducer from the same weights and data. A sum of two ranks has one order, and half
of it is exact, so the bits of all parameters must be the same with both reducers, and on both ranks. The time of a
step is told for each.

--on-host tries the script out without a GPU, over Gloo.

Exit code: 0; 65 when bits differ, on which rank and in which parameter; 77 where there is no CUDA device, or no lockstep.torch
in --module FOLDER, or one that refuses GPUs: the last line says which; 1 for other failures.
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

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cuda_ddp import NCCL_VARIABLES  # noqa: E402

NOTHING_TO_RUN = 77


class NothingToRun(Exception):
    pass


def find_lockstep(folder):
    """The class of lockstep.torch in that folder alone, whatever else is installed."""
    package = os.path.join(folder, "lockstep", "torch")
    if not os.path.isfile(os.path.join(package, "__init__.py")) and not os.path.isfile(package + ".py"):
        raise NothingToRun(f"not built: there is no lockstep.torch in {folder}")
    sys.path.insert(0, os.path.abspath(folder))
    try:
        import lockstep.torch
    except ImportError as error:
        raise NothingToRun(f"not built: {' '.join(str(error).split())}") from None
    return lockstep.torch.DistributedDataParallel


def wrapped(maker, module, device):
    try:
        return maker(module)
    except (TypeError, ValueError, RuntimeError, NotImplementedError) as error:
        text = " ".join(str(error).split())
        if device == "cuda" and "take torch.nn.parallel.DistributedDataParallel" in text:
            raise NothingToRun(f"lockstep.torch refuses GPUs: {text}") from None
        raise


def net(device):
    torch.manual_seed(7)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(16, 32, 3, stride=2), torch.nn.ReLU(),
        torch.nn.Flatten(), torch.nn.Linear(32 * 7 * 7, 64), torch.nn.Tanh(), torch.nn.Linear(64, 10)).to(device)


def train(maker, device, rank, steps):
    """The parameters after some steps, and the median of a step in ms."""
    module = net(device)
    run = wrapped(maker, module, device)
    optimizer = torch.optim.SGD(run.parameters(), lr=0.05, momentum=0.5)
    generator = torch.Generator().manual_seed(100 + rank)
    times = []
    for _ in range(steps):
        images = torch.randn(8, 3, 16, 16, generator=generator).to(device)
        classes = torch.randint(0, 10, (8,), generator=generator).to(device)
        start = time.perf_counter()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(run(images), classes).backward()
        optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    return {name: each.detach().cpu() for name, each in module.named_parameters()}, statistics.median(times)


def bits(tensor):
    return tensor.contiguous().view(torch.int32)


def expect_equal_bits(one, other, what):
    for name in one:
        if not torch.equal(bits(one[name]), bits(other[name])):
            print(f"{what}: other bits in {name}", file=sys.stderr)
            sys.exit(65)


def run_rank(rank, options, device, folder, job):
    os.environ.update(NCCL_VARIABLES, NCCL_HOSTID=f"model-{job}-{rank}", GLOO_SOCKET_IFNAME="lo")
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    try:
        maker = find_lockstep(options.module)
        if device == "cuda":
            torch.cuda.set_device(0)
        dist.init_process_group("nccl" if device == "cuda" else "gloo", init_method=f"file://{folder}/store", rank=rank,
                                world_size=2, timeout=datetime.timedelta(seconds=60))
        ours, our_ms = train(maker, device, rank, options.steps)
    except NothingToRun as nothing:
        # Whichever rank ends first ends the other.
        print(f"skipped: {nothing}", flush=True)
        sys.exit(NOTHING_TO_RUN)
    theirs, their_ms = train(torch.nn.parallel.DistributedDataParallel, device, rank, options.steps)
    expect_equal_bits(ours, theirs, f"rank {rank}, against PyTorch's reducer")
    everybody = [None, None]
    dist.all_gather_object(everybody, ours)
    expect_equal_bits(everybody[0], everybody[1], "rank 0 against rank 1")
    dist.destroy_process_group()
    if rank == 0:
        print(f"torch {torch.__version__}, 2 ranks, {options.steps} steps: equal bits in {len(ours)} parameters;"
              f" a step takes {our_ms:.3f} ms with lockstep.torch, {their_ms:.3f} ms with PyTorch's reducer")
        if options.json:
            with open(options.json, "w", encoding="utf-8") as out:
                json.dump({"torch": torch.__version__, "steps": options.steps, "parameters": len(ours), "lockstep_ms": our_ms,
                           "torch_ms": their_ms}, out)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--module", required=True, help="the folder of the Python package lockstep")
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--on-host", action="store_true")
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    if not options.on_host and not torch.cuda.is_available():
        print("skipped: no CUDA device (torch sees none: look at nvidia-smi, and at torch.version.cuda,"
              f" which is {torch.version.cuda})")
        sys.exit(NOTHING_TO_RUN)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # so that PyTorch's own results repeat
    with tempfile.TemporaryDirectory() as folder:
        try:
            multiprocessing.spawn(run_rank, (options, "cpu" if options.on_host else "cuda", folder, os.getpid()), nprocs=2)
        except multiprocessing.ProcessExitedException as ended:
            sys.exit(ended.exit_code if ended.exit_code in (65, NOTHING_TO_RUN) else f"a rank ended: {ended}")


if __name__ == "__main__":
    main()
