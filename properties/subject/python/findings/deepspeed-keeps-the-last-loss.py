"""DeepSpeed's ZeRO, stage 1 and 2. Two losses of one batch, each with its engine.backward(), before one engine.step():
the step is that of the second loss alone. Expected: that of their sum, as gradients accumulate."""

import os

os.environ.update(DS_ACCELERATOR="cpu", MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")
from ranks import Model, dist, each, not_there, run, torch, verdict

try:
    import deepspeed
except ImportError:
    not_there("deepspeed")
deepspeed.utils.logger.setLevel("ERROR")
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # it would be compiled


def body(rank):
    os.environ.update(RANK=str(rank.number), LOCAL_RANK=str(rank.number), WORLD_SIZE="2")
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False, verbose=False)
    for stage in (1, 2):
        module = Model(p=torch.zeros(1))
        config = {"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0.0, "zero_optimization": {"stage": stage},
                  "zero_allow_untested_optimizer": True}
        optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
        engine = deepspeed.initialize(model=module, optimizer=optimizer, config=config)[0]
        engine.backward(engine("p", 100.0))
        engine.backward(engine("p", 1.0))
        engine.step()
        rank.report("stage %d" % stage, module.p.tolist())
    dist.barrier()


seen = run(body, seconds=120)
stages = ("stage 1", "stage 2")
verdict(
    shown=all(each(seen, stage, [-1.0]) for stage in stages),
    right=all(each(seen, stage, [-101.0]) for stage in stages),
)
