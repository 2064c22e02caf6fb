"""What DistributedDataParallel has beside its reducer: hooks for buffers, the record of _get_ddp_logging_data(), warnings,
and joins that end early."""

import os
import warnings

import torch
import torch.distributed as dist
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


class LoggingData:
    """What DistributedDataParallel's logger knows without a clock; times are in Lockstep's flight record."""

    def _get_ddp_logging_data(self):
        named = [(name, each) for name, each in self._members.named if each.requires_grad]
        dtypes = dict.fromkeys(str(each.dtype).replace("torch.", "").replace("float32", "float") for _, each in named)
        data = {
            "world_size": dist.get_world_size(self.process_group),
            "rank": dist.get_rank(self.process_group),
            "module_name": type(self.module).__name__,
            "device_ids": "",
            "output_device": -1,
            "backend_name": dist.get_backend(self.process_group),
            "iteration": self.num_iterations,
            "dtypes": ", ".join(dtypes),
            "has_sync_bn": int(any(isinstance(part, torch.nn.SyncBatchNorm) for part in self.module.modules())),
            "has_rebuilt_buckets": int(self._reducer.is_rebuilt()),
            "can_set_static_graph": False,
            "find_unused_parameters": int(self.find_unused_parameters),
            "static_graph": int(self.static_graph),
            "gradient_as_bucket_view": int(self.gradient_as_bucket_view),
            "broadcast_buffers": int(self.forward_sync_buffers),
            "bucket_cap_bytes": self.bucket_bytes_cap,
            "bucket_sizes": ", ".join(map(str, self._reducer.bucket_bytes())),
            "num_parameter_tensors": len(named),
            "total_parameter_size_bytes": sum(each.numel() * each.element_size() for _, each in named),
            "join_uneven_inputs": bool(self._is_joining),
        }
        for name in ("MASTER_ADDR", "MASTER_PORT", "TORCH_DISTRIBUTED_DEBUG", "CUDA_VISIBLE_DEVICES", "GLOO_SOCKET_IFNAME"):
            data[name.lower()] = os.environ.get(name, "N/A")
        if self._hook:
            data["comm_hook"] = self._hook[2]
        error = self.logger.error or self._reducer.failure()
        if error:
            data.update(has_error=1, error=error)
        return data

    def _log_and_throw(self, err_type, err_msg):
        self.logger.set_error_and_log("%s: %s" % (err_type, err_msg))
        raise err_type(err_msg)


class EarlyEnd:
    """join(throw_on_early_termination=True): before each forward the ranks tell each other whether all have inputs, as the
    forward itself may communicate. When one has none, all raise, and none has to shadow the others."""

    def __init__(self, process_group):
        self._process_group = process_group

    def _ranks_with_inputs(self, mine):
        count = torch.tensor([mine], dtype=torch.int32)
        dist.all_reduce(count, group=self._process_group)
        return count.item()

    def begin_forward(self):
        if self._ranks_with_inputs(1) < dist.get_world_size(self._process_group):
            raise RuntimeError("Detected at least one rank that exhausted inputs. Throwing across all ranks.")

    def end(self):
        if self._ranks_with_inputs(0) > 0:
            raise RuntimeError("Rank %d exhausted all inputs." % dist.get_rank(self._process_group))
