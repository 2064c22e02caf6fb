"""torchft's DistributedDataParallel: the all-reduces go through a Manager, which agrees on who takes part before each
step. Each rank is a replica group of its own, and rank 0 runs the lighthouse, as one does for a job."""

import datetime
import os

import torch
import torch.distributed as dist

os.environ.setdefault("RUST_LOG", "error")  # what its servers print
import torchft
from torchft._torchft import LighthouseServer

LIMIT = datetime.timedelta(seconds=20)


class Managed(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        rank, world = dist.get_rank(), dist.get_world_size()
        self.lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=world) if rank == 0 else None
        port = torch.tensor(int(self.lighthouse.address().rsplit(":", 1)[1]) if rank == 0 else 0)
        dist.broadcast(port, 0)
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.manager = torchft.Manager(
            pg=torchft.ProcessGroupGloo(timeout=LIMIT), load_state_dict=None, state_dict=None, min_replica_size=world,
            use_async_quorum=False, init_sync=False, timeout=LIMIT, quorum_timeout=LIMIT, connect_timeout=LIMIT, rank=0,
            world_size=1, store_addr="127.0.0.1", store_port=self.store.port, lighthouse_addr="http://127.0.0.1:%d" % port,
            replica_id="rank_%d" % rank, hostname="127.0.0.1")
        self.wrapped = self.make_wrapped(module)
        self.is_in_step = False

    def make_wrapped(self, module):
        return torchft.DistributedDataParallel(self.manager, module)

    def forward(self, *arguments):
        if torch.is_grad_enabled() and not self.is_in_step:
            self.manager.start_quorum()
            self.is_in_step = True
        return self.wrapped(*arguments)

    def after_backward(self):
        self.is_in_step = False
        if not self.manager.should_commit():
            raise RuntimeError("the step is not committed: %s" % self.manager.errored())

    def __del__(self):
        if "manager" in self.__dict__:
            self.manager.shutdown(wait=False)
        if "lighthouse" in self.__dict__ and self.lighthouse is not None:
            self.lighthouse.shutdown()


def wrap(module):
    return Managed(module)


wrap.can = "shared frozen float64"
