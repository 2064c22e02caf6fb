"""What DistributedDataParallel has beside its reducer: hooks for buffers, optimizers that step in the backward, warnings."""

import warnings

import torch
from torch.nn.parallel import distributed as torchs


def warn_of_broadcast_buffers(broadcast_buffers):
    """Since PyTorch 2.15 the option has another name, and the old one warns."""
    if broadcast_buffers is not None and isinstance(vars(torchs.DistributedDataParallel).get("broadcast_buffers"), property):
        warnings.warn("broadcast_buffers is deprecated: give forward_sync_buffers", FutureWarning, stacklevel=3)


class BufferHooks:
    """A hook that sends the buffers in the place of the broadcast, before or after a forward."""

    def _register_buffer_comm_hook(self, state, hook, comm_hook_location=torchs._BufferCommHookLocation.POST_FORWARD):
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        self.buffer_hook = torchs._BufferCommHook(
            buffer_comm_hook=hook, buffer_comm_hook_state=state, buffer_comm_hook_location=comm_hook_location
        )

    def _sends_buffers_by_hook(self):
        return "buffer_hook" in self.__dict__

    def _run_buffer_hook(self, location):
        """What it returns is waited for at once, and not at the end of the backward."""
        if not self._sends_buffers_by_hook() or self.buffer_hook.buffer_comm_hook_location != location:
            return
        buffers = dict(self._buffers_to_send())
        if not buffers:
            return
        with torch.no_grad():
            for future in self.buffer_hook.buffer_comm_hook(self.buffer_hook.buffer_comm_hook_state, buffers) or ():
                future.wait()

    def _default_broadcast_coalesced(self, bufs=None, bucket_size=None, authoritative_rank=0):
        """For hooks that broadcast as there would be without them."""
        bufs = [buffer for _, buffer in self._buffers_to_send()] if bufs is None else bufs
        self._distributed_broadcast_coalesced(bufs, bucket_size or self.broadcast_bucket_size, authoritative_rank)


def optimizers_in_backward(parameters):
    """What steps the optimizers that torch.distributed.optim._apply_optimizer_in_backward() has put on these parameters, once
    their gradients are averaged; None if there are none. It takes away PyTorch's hooks, which step before that."""
    stepped = [each for each in parameters if hasattr(each, "_in_backward_optimizers")]
    if not stepped:
        return None
    for each in stepped:
        for handle in handles_of_optimizers().get(each, ()):
            handle.remove()

    def step():
        for each in stepped:
            for optimizer in each._in_backward_optimizers:
                optimizer.step()
            each.grad = None

    return step


def handles_of_optimizers():
    """Of each parameter the handles of such hooks; None if this PyTorch does not tell."""
    try:
        from torch.distributed.optim import apply_optimizer_in_backward as of_torch
    except ImportError:  # PyTorch 1.13 has no such optimizers
        return None
    return getattr(of_torch, "param_to_optim_hook_handle_map", None)
