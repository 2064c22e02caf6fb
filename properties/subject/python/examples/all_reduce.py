"""An all-reduce by hand: after the backward of a synced step every gradient becomes the average over the ranks."""

import torch
import torch.distributed as dist


class AllReduced(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        self.trained = [each for each in module.parameters() if each.requires_grad]

    def forward(self, *arguments):
        return self.module(*arguments)

    def after_backward(self):  # each rank calls it after the backward of a synced step
        ranks_with_grad = torch.tensor([each.grad is not None for each in self.trained], dtype=torch.int32)
        dist.all_reduce(ranks_with_grad)
        for parameter, ranks in zip(self.trained, ranks_with_grad.tolist()):
            if ranks == 0:
                continue
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


def wrap(module):
    return AllReduced(module)


wrap.can = """dynamic no_sync no_grad several_forwards several_backwards discard keep_outputs checkpoint shared frozen
              float64 float16 strides zero_size scalars"""
