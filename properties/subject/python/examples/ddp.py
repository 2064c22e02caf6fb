"""PyTorch's DistributedDataParallel, held to what is known of its version (contract "torch")."""

import torch
from torch.nn.parallel import DistributedDataParallel


def wrap(module, **options):
    return DistributedDataParallel(module, **options)


wrap.contract = "torch"
wrap.can = """dynamic static views no_sync no_grad several_forwards several_backwards discard keep_outputs
              interleaved between hold_outputs later_backward checkpoint shared frozen float64 float16 strides scalars
              undefined errors recovery absent"""
if not torch.__version__.startswith("1."):
    wrap.can += " zero_size"  # 1.13 refuses some at construction (FINDINGS.md)
