"""A process that has used PyTorch's pool of threads forks. In the child the pool is made anew at its first use, and
threads that come there together can see none: `INTERNAL ASSERT FAILED ... please report a bug to PyTorch. Invalid
thread pool!`. So a forked rank may end at its first backward. A race: up to 50 children try. Expected: the pool is made
once (pytorch#178535)."""

import os
import threading

from ranks import torch, verdict

TOO_LARGE_FOR_ONE_THREAD = 70000
ERROR = "Invalid thread pool!"


def fails(outcomes, barrier):
    barrier.wait()
    try:
        torch.ones(TOO_LARGE_FOR_ONE_THREAD).add_(1)
    except RuntimeError as error:
        outcomes.append(ERROR in str(error))


def child(count=4):
    outcomes, barrier = [], threading.Barrier(count)
    threads = [threading.Thread(target=fails, args=(outcomes, barrier)) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os._exit(1 if any(outcomes) else 2 if outcomes else 0)


torch.set_num_threads(4)
torch.ones(TOO_LARGE_FOR_ONE_THREAD).add_(1)
codes = []
while 1 not in codes and len(codes) < 50:
    process = os.fork() or child()
    codes.append(os.WEXITSTATUS(os.waitpid(process, 0)[1]))
verdict(shown=1 in codes, right=set(codes) == {0})
