"""suite.py --subject ddp|lockstep|local --ranks N [--force A,B] [--limit SECONDS] [--source FOLDER] [--list] [TEST...]

Runs PyTorch's own tests of DDP out of the installed PyTorch, in this Python, with N ranks over Gloo; --source names a
checkout of PyTorch, whose test_c10d_gloo.py is run, too. For each test one line of JSON goes to stdout: name, state (pass,
fail, skip, hang, crash), seconds, error (of the first rank that has one), said (the end of what the ranks printed). run.py
calls this program and judges what it says.
"""

import argparse
import functools
import inspect
import io
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import unittest
import warnings

import which_tests

def settle(ranks):
    """What distributed_test.py reads of the environment when it is imported."""
    warnings.simplefilter("ignore")
    os.environ.update(
        BACKEND="gloo",
        WORLD_SIZE=str(ranks),
        MASTER_ADDR="127.0.0.1",
        INIT_METHOD="file://unused",
        TEMP_DIR=tempfile.mkdtemp(prefix="lockstep-ddp-tests-"),
        GLOO_SOCKET_IFNAME="lo",
        OMP_NUM_THREADS="1",
        PYTHONWARNINGS="ignore",
    )


def import_tests(source, limit):
    """distributed_test.py of the installed PyTorch; with its sources, also test_c10d_gloo.py out of these. Its ranks wait 60 s for
    each other, in which those of a busy machine do not compile a model: they get half of the limit of a test."""
    import torch

    import played_gpu

    torch.set_num_threads(1)
    import torch._dynamo  # DDP's constructor imports it, which takes each rank seconds

    played_gpu.before_import()
    from torch.testing._internal.distributed import distributed_test

    test_c10d_gloo = None
    if source:
        sys.path.insert(0, os.path.join(source, "test", "distributed"))
        import test_c10d_gloo
    played_gpu.after_import(distributed_test)
    distributed_test.default_pg_timeout = max(distributed_test.default_pg_timeout, limit / 2)
    distributed_test.HAS_TORCHVISION = False  # its resnet50 would take minutes on a CPU
    return distributed_test, test_c10d_gloo


def forced_options(forced, options):
    """The options of a constructor with those that are forced."""
    options = dict(options)
    if "views" in forced:
        options["gradient_as_bucket_view"] = True
    if "rank-order" in forced:
        options["order"] = "rank"
    if "tiny-buckets" in forced and not options.get("bucket_cap_mb_list"):
        options["bucket_cap_mb"] = 2**-20
    if "dynamic" in forced and not options.get("static_graph"):
        options["find_unused_parameters"] = True
    return options


def put_in(subject, forced):
    """Puts the subject in DDP's place; places on GPUs mean nothing here, and are left out."""
    from torch.nn.parallel import DistributedDataParallel

    taken = DistributedDataParallel
    if subject == "local":
        taken.forward = lambda self, *inputs, **options: self.module(*inputs, **options)
    if subject == "lockstep":
        import lockstep.torch

        lockstep.torch.replace_ddp()
        taken = lockstep.torch.DistributedDataParallel
    original = taken.__init__

    @functools.wraps(original)
    def without_places(self, module, device_ids=None, output_device=None, *arguments, **options):
        original(self, module, None, None, *arguments, **forced_options(forced, options))

    taken.__init__ = without_places


def forked(base, limit):
    """PyTorch's test case, whose ranks are forks of this process."""
    from torch.testing._internal import common_distributed

    import played_gpu

    common_distributed.get_timeout = lambda _test: limit

    class Forked(base):
        def setUp(self):
            super().setUp()
            if not self.processes:
                self._spawn_processes()

        def _spawn_processes(self):
            self._start_processes(multiprocessing.get_context("fork").Process)

        @classmethod
        def _run(cls, rank, *arguments, **options):
            played_gpu.rank_here = rank
            super()._run(rank, *arguments, **options)

        def _check_return_codes(self, function, *arguments):
            """PyTorch asks rank 0 alone how it ended."""
            codes = [process.exitcode for process in self.processes]
            for rank, code in enumerate(codes):
                if code is not None and code < 0 and -code != signal.SIGTERM:
                    raise RuntimeError("rank %d was ended by %s" % (rank, signal.Signals(-code).name))
            super()._check_return_codes(function, *arguments)
            if function not in self.skip_return_code_checks and len(set(codes)) > 1:
                raise RuntimeError("the ranks ended with the codes %s" % codes)

    return Forked


def cases(arguments):
    """Each test case, by the prefix that its tests have, with the names of its tests that use DDP."""
    distributed_test, test_c10d_gloo = import_tests(arguments.source, arguments.limit)

    class OfWheel(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        pass

    case = forked(OfWheel, arguments.limit)
    users = which_tests.users_of_ddp(inspect.getsource(distributed_test))
    yield "", case, which_tests.expand(users, [name for name in dir(case) if name.startswith("test_")])
    if test_c10d_gloo:

        class OfSources(test_c10d_gloo.DistributedDataParallelTest):
            world_size = arguments.ranks  # that of the wheel's tests is WORLD_SIZE

        case = forked(OfSources, arguments.limit)
        yield "c10d_gloo:", case, [name for name in dir(case) if name.startswith("test_")]


def state_of(result):
    if result.skipped:
        return "skip", result.skipped[0][1]
    problems = result.errors + result.failures
    if not problems:
        return "pass", ""
    error = problems[0][1]
    if "terminated or timed out after" in error:
        return "hang", error
    return ("crash" if "was ended by SIG" in error else "fail"), error


def run_test(case, name):
    """The record of one test. What its ranks print goes to a file, as they are other processes."""
    started = time.monotonic()
    with tempfile.TemporaryFile("w+") as said:
        kept = [os.dup(1), os.dup(2)]
        sys.stdout.flush()
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
        try:
            result = unittest.TextTestRunner(stream=io.StringIO(), verbosity=0).run(case(name))
        finally:
            sys.stdout.flush()
            for descriptor in (1, 2):
                os.dup2(kept[descriptor - 1], descriptor)
                os.close(kept[descriptor - 1])
        said.seek(0, os.SEEK_END)
        said.seek(max(0, said.tell() - 6000))
        text = said.read()
    state, error = state_of(result)
    return {"state": state, "seconds": round(time.monotonic() - started, 1), "error": error[-8000:], "said": text}


def main(words):
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--subject", choices=("ddp", "lockstep", "local"), default="lockstep")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--force", default="")
    parser.add_argument("--limit", type=float, default=120)
    parser.add_argument("--source", default="")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args(words)
    settle(arguments.ranks)
    for prefix, case, names in cases(arguments):
        if not prefix:
            put_in(arguments.subject, [one for one in arguments.force.split(",") if one])
        for name in names:
            if arguments.names and prefix + name not in arguments.names:
                continue
            record = {} if arguments.list else run_test(case, name)
            print(json.dumps({"name": prefix + name, **record}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
