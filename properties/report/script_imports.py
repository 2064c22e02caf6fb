import datetime
import json
import math
import os
import sys
import tempfile
import time

try:
    import torch
    import torch.distributed as dist
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.nn.parallel import DistributedDataParallel
except ImportError as error:
    print("cannot run: this needs PyTorch with torch.distributed (%s)" % error)
    sys.exit(2)

CALL_SECONDS = 15  # a collective that a peer never joins fails after this time
RUN_SECONDS = 300  # a rank that has not reported by then hangs
