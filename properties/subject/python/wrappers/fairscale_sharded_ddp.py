"""fairscale's ShardedDataParallel with OSS: each gradient goes to the rank that owns it, and only there is it a mean."""

import torch
import torch.distributed as dist
from fairscale.nn.data_parallel import ShardedDataParallel
from fairscale.optim.oss import OSS
from profiles import guess, kept_gradients, uneven_order


class Owned(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.named = dict(module._modules)
        trained = [each for each in module.parameters() if each.requires_grad]
        self.owners = OSS(trained, torch.optim.SGD, lr=0.0)
        self.wrapped = ShardedDataParallel(module, self.owners)

    def forward(self, *arguments):
        return self.wrapped(*arguments)

    def gradient(self, name):
        """The owner's."""
        parameter = self.named[name].weight
        owner = self.owners._param_to_rank.get(parameter)
        if owner is None:
            return None
        is_there = torch.tensor(parameter.grad is not None)
        dist.broadcast(is_there, owner)
        if not is_there:
            return None
        gradient = parameter.grad if dist.get_rank() == owner else torch.empty_like(parameter)
        gradient = gradient.detach().clone()
        dist.broadcast(gradient, owner)
        return gradient


def none_after_the_first_step(program, step):
    """Gradients are set to None: what reduces them was hung on the first ones."""
    return step > 0 and any(call[0] == "zero_grad" and call[2] == "to none" for rank in program.ranks for call in rank[step]["calls"])


def wrap(module):
    return Owned(module)


wrap.can = "frozen"
wrap.excludes = [uneven_order, kept_gradients, none_after_the_first_step]


@guess("", "bits", excludes=[uneven_order, kept_gradients])
def gradients_are_averages(module):
    return Owned(module)
