"""lockstep.torch.DistributedDataParallel as the subject of `lockstep fuzz --subject python:reducer/torch/testing/fuzz_wrapper.py:wrap`.

It is held to the contract `lockstep`, with all that a wrapper in Python can declare. The ranks keep their process group from
case to case, and not its store, which lies in the folder of the first case; so they make one of their own for each group.
"""

import torch
import torch.distributed as dist

import lockstep.torch

# Debian builds PyTorch without libuv, which later versions take unless they are told not to.
TCP_STORE = {"use_libuv": False} if "use_libuv" in (dist.TCPStore.__init__.__doc__ or "") else {}
stores = []  # of (process group, store): the last one


def store_of_group():
    if not stores or stores[-1][0] is not dist.group.WORLD:
        is_first = dist.get_rank() == 0
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, **TCP_STORE) if is_first else None
        port = torch.tensor(store.port if is_first else 0)
        dist.broadcast(port, 0)
        store = store or dist.TCPStore("127.0.0.1", port.item(), is_master=False, wait_for_workers=False, **TCP_STORE)
        stores[:] = [(dist.group.WORLD, store)]
    return stores[-1][1]


def wrap(module, find_unused_parameters=False, static_graph=False, gradient_as_bucket_view=False, bucket_cap_mb=25, **more):
    return lockstep.torch.DistributedDataParallel(
        module, find_unused_parameters=find_unused_parameters, static_graph=static_graph,
        gradient_as_bucket_view=gradient_as_bucket_view, bucket_cap_mb=bucket_cap_mb,
        store=store_of_group(), **more)


def wrap_in_rank_order(module, **options):
    """Cases of this one have numbers that round: the sums are held to their order bit for bit."""
    return wrap(module, order="rank", verify_payload=True, **options)


def wrap_in_rings(module, bucket_cap_mb=25, **options):
    """The same in the native order, with a collective for each parameter."""
    return wrap(module, bucket_cap_mb=1e-6, **options)


wrap.can = """dynamic static views no_sync no_grad several_forwards several_backwards discard keep_outputs interleaved between
              hold_outputs later_backward checkpoint shared frozen float64 float16 strides scalars zero_size undefined"""
wrap_in_rank_order.can = wrap_in_rings.can = wrap.can
wrap_in_rank_order.order = "rank order"
wrap_in_rings.order = "Gloo's ring"
wrap_in_rank_order.scale = wrap_in_rings.scale = "multiply before"
