"""PyTorch's DistributedDataParallel, held to what is known of its version (contract "torch")."""

from torch.nn.parallel import DistributedDataParallel


def wrap(module, **options):
    return DistributedDataParallel(module, **options)


wrap.contract = "torch"
wrap.can = """dynamic static views no_sync no_grad several_forwards several_backwards discard keep_outputs
              checkpoint shared frozen float64 float16 strides zero_size scalars undefined errors recovery"""
