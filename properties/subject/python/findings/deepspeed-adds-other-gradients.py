"""DeepSpeed's ZeRO, stage 2. Both ranks use p and q, one after the other on rank 0, the other way round on rank 1. A
bucket holds gradients in the order in which they came: those of p are added to those of q, silently. Expected: the
mean of each."""

import os

os.environ.update(DS_ACCELERATOR="cpu", MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")
from ranks import Model, dist, each, not_there, run, torch, verdict

try:
    import deepspeed
except ImportError:
    not_there("deepspeed")
deepspeed.utils.logger.setLevel("ERROR")
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # it would be compiled


class Weighted(Model):
    """The gradient of p is 1, and that of q is 100."""

    def forward(self, used):
        return sum((getattr(self, name) * {"p": 1.0, "q": 100.0}[name]).sum() for name in used)


def body(rank):
    os.environ.update(RANK=str(rank.number), LOCAL_RANK=str(rank.number), WORLD_SIZE="2")
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False, verbose=False)
    module = Weighted(p=torch.zeros(1), q=torch.zeros(1))
    config = {"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0.0, "zero_optimization": {"stage": 2},
              "zero_allow_untested_optimizer": True}
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    engine = deepspeed.initialize(model=module, optimizer=optimizer, config=config)[0]
    engine.backward(engine("pq" if rank.number == 0 else "qp"))
    engine.step()
    rank.report("weights", module.p.tolist() + module.q.tolist())
    dist.barrier()


seen = run(body, seconds=120)
verdict(shown=each(seen, "weights", [-50.5, -50.5]), right=each(seen, "weights", [-1.0, -100.0]))
