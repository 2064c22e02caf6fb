"""What the profiles of DeepSpeed's ZeRO share. An engine owns the optimizer, and a step of it ends the gradients: so this one
steps, with a learning rate of 0, when the next step of a program begins."""

import os

os.environ.setdefault("DS_ACCELERATOR", "cpu")
import deepspeed
import torch
import torch.distributed as dist
from deepspeed.utils import groups, logger, safe_get_full_grad
from launched import set_environment

logger.setLevel("ERROR")
# An extension for ranks that share memory, which these do not say: it would be compiled, and each case would load it.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def forget_groups():
    """DeepSpeed keeps what it knows of the process group, which another case may have made anew."""
    deepspeed.comm.comm.cdb = None
    for name in ("_WORLD_GROUP", "_ZERO_PARAM_INTRA_PARALLEL_GROUP", "_DATA_PARALLEL_GROUP", "mpu", "mesh_device"):
        if hasattr(groups, name):
            setattr(groups, name, None)


class Zero(torch.nn.Module):
    def __init__(self, module, stage, **config):
        super().__init__()
        set_environment()
        forget_groups()
        deepspeed.init_distributed("gloo", auto_mpi_discovery=False, verbose=False)
        optimizer = torch.optim.SGD([each for each in module.parameters() if each.requires_grad], lr=0.0)
        zero = {"stage": stage, "allgather_bucket_size": 1000, "reduce_bucket_size": 1000}
        batches = {"train_micro_batch_size_per_gpu": 1, "train_batch_size": dist.get_world_size()}
        config = {"zero_optimization": zero, "zero_allow_untested_optimizer": True, "gradient_clipping": 0.0, **batches, **config}
        self.engine = deepspeed.initialize(model=module, optimizer=optimizer, config=config)[0]
        self.named = dict(module._modules)
        self.is_open = False  # whether there are gradients for which the engine has not stepped

    def forward(self, *arguments):
        if self.is_open and torch.is_grad_enabled():
            self.engine.step()
            self.is_open = False
        return self.engine(*arguments)

    def backward(self, outputs, ones, retain_graph):
        self.engine.backward(torch.stack(outputs).sum(), retain_graph=retain_graph)

    def after_backward(self):
        self.is_open = True

    def gradient(self, name):
        parameter = self.named[name].weight
        return safe_get_full_grad(parameter) if parameter.requires_grad else None
