"""lockstep.torch.DistributedDataParallel as the subject of `lockstep fuzz --subject python:reducer/torch/testing/fuzz_wrapper.py:wrap`.

It is held to the contract `lockstep`, with all that a wrapper in Python can declare.
"""

import lockstep.torch


def wrap(module, find_unused_parameters=False, static_graph=False, gradient_as_bucket_view=False, bucket_cap_mb=25):
    return lockstep.torch.DistributedDataParallel(
        module, find_unused_parameters=find_unused_parameters, static_graph=static_graph,
        gradient_as_bucket_view=gradient_as_bucket_view, bucket_cap_mb=bucket_cap_mb)


wrap.can = """dynamic static views no_sync no_grad several_forwards several_backwards discard keep_outputs interleaved between
              hold_outputs later_backward checkpoint shared frozen float64 float16 strides scalars zero_size undefined"""
