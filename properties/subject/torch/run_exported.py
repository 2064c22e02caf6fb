"""Runs exported scripts one after the other, for export_test.sh: it imports PyTorch once, and each script, and each of its
ranks, is a fork, where `python3 SCRIPT` and the ranks that it spawns import PyTorch anew, which is most of their time. The
scripts run no operation of PyTorch before their ranks start, so that a fork is as good.

Standard input has a line for each script: its file, and those for its output and its errors, with tabs between. The exit
code of each is a line of standard output.
"""

import os
import runpy
import sys
import traceback

import torch.distributed.algorithms.ddp_comm_hooks.default_hooks  # noqa: F401  all that the scripts import
import torch.multiprocessing
import torch.nn.parallel  # noqa: F401

fork = torch.multiprocessing.get_context("fork")
torch.multiprocessing.get_context = lambda way: fork


def run(script, output, errors):
    """Runs the script, and ends the process."""
    for file, descriptor in ((output, 1), (errors, 2)):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    code = 1
    try:
        runpy.run_path(script, run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


for line in sys.stdin:
    process = os.fork()
    if process == 0:
        run(*line.rstrip("\n").split("\t"))
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    print(code if code >= 0 else 128 - code, flush=True)  # as a shell says which signal it was
