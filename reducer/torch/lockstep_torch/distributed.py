"""lockstep.torch.DistributedDataParallel: PyTorch's class of that name, on Lockstep's reducer.

It is a subclass, as libraries ask for one, and does not run the constructor of the other. The extension has the reducer
and its hooks; here are the options, the checks, and what is around a forward.
"""

import contextlib
import sys
import warnings

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Joinable
from torch.nn.parallel import distributed as torchs

from lockstep.torch import _interrupts as interrupts
from lockstep.torch._containers import Outputs
from lockstep.torch._details import (BufferHooks, handles_of_optimizers, optimizers_in_backward,
                                     warn_of_broadcast_buffers)
from lockstep.torch._load import extension
from lockstep.torch._logging import LoggingData, Times
from lockstep.torch._members import Members, is_inside_of_backward
from lockstep.torch._mixed_precision import MixedPrecision, refusal_of
from lockstep.torch._reducer_face import ReducerFace
from lockstep.torch._rendezvous import connect, keep
from lockstep.torch._uneven_inputs import UnevenInputs

MIB = 1024 * 1024
FIRST_BUCKET_BYTES = MIB
BUCKET_CAP_MB = 25
# Options of DistributedDataParallel that are not supported, with what to do.
DELAYS = ("leave both options out, and give a bucket_cap_mb above the size of the gradients: then one all-reduce takes them all, "
          "when the last of them is ready")
UNSUPPORTED = {
    "delay_all_reduce_named_params": DELAYS,
    "param_to_hook_all_reduce": DELAYS,
    "lazy_bucket_allocation": "leave it out, as buckets are allocated when the module is wrapped; with gradient_as_bucket_view=True "
                              "gradients and buckets are the same memory",
}


@contextlib.contextmanager
def active_module(wrapper):
    ddp = torchs.DistributedDataParallel
    outer, ddp._active_ddp_module = ddp._active_ddp_module, wrapper
    try:
        yield
    finally:
        ddp._active_ddp_module = outer


class DistributedDataParallel(UnevenInputs, BufferHooks, LoggingData, torchs.DistributedDataParallel):
    """Averages the gradients of a module over all ranks while the backward runs.

    The options are those of torch.nn.parallel.DistributedDataParallel; what is not supported is refused. Further ones:

      order           "native": the order in which the transport adds; "rank": rank 0 first, whatever the buckets, so that
                      the bits are those of one process that adds the ranks' gradients
      verify_payload  each rank checks what it receives (with order="rank")
      timeout         seconds, or a timedelta: how long a rank waits without progress; that of the process group otherwise
      store           a torch.distributed.Store by which the ranks meet; that of the process group otherwise
      share_memory    if all ranks run on one host, gradients go through memory that they share; False: over TCP

    Errors are LockstepError (a RuntimeError) with `rank`, `code`, `suspect` and `parameters`. After one, reset() goes on
    with the ranks that are left.
    """

    def __init__(self, module, device_ids=None, output_device=None, dim=0, broadcast_buffers=None, init_sync=True,
                 process_group=None, bucket_cap_mb=None, find_unused_parameters=False, check_reduction=False,
                 gradient_as_bucket_view=False, static_graph=False, delay_all_reduce_named_params=None,
                 param_to_hook_all_reduce=None, mixed_precision=None, device_mesh=None,
                 skip_all_reduce_unused_params=False, bucket_cap_mb_list=None, batched_grad_copy=False,
                 forward_sync_buffers=None, lazy_bucket_allocation=False, *, order="native", verify_payload=False,
                 timeout=None, store=None, share_memory=True):
        torch.nn.Module.__init__(self)
        Joinable.__init__(self)
        if process_group is not None and device_mesh is not None:
            raise RuntimeError("Cannot specify both process_group and device_mesh arguments.")
        if device_mesh is not None:
            if device_mesh.ndim != 1:
                raise RuntimeError("Only 1D device mesh is supported, but got %s." % device_mesh)
            self.device_mesh = device_mesh
            process_group = device_mesh.get_group(0)
        if check_reduction:
            warnings.warn("check_reduction does nothing and is deprecated", stacklevel=2)
        warn_of_broadcast_buffers(broadcast_buffers)
        if forward_sync_buffers is None:
            forward_sync_buffers = True if broadcast_buffers is None else broadcast_buffers
        self.module = module
        self.process_group = process_group if process_group is not None else dist.distributed_c10d._get_default_group()
        self.dim, self.device_ids, self.output_device = dim, None, None
        self.find_unused_parameters, self.static_graph = find_unused_parameters, static_graph
        self.gradient_as_bucket_view, self.batched_grad_copy = gradient_as_bucket_view, batched_grad_copy
        self.forward_sync_buffers = forward_sync_buffers
        if "broadcast_buffers" not in dir(torchs.DistributedDataParallel):  # since 2.15 a property
            self.broadcast_buffers = forward_sync_buffers
        self.parameters_to_ignore = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        self.skip_all_reduce_unused_params = skip_all_reduce_unused_params
        self._order, self._verify_payload, self._timeout = order, verify_payload, timeout
        self._share_memory = share_memory
        self._hook = None
        self._set_bucket_caps(bucket_cap_mb, bucket_cap_mb_list)
        self._set_attributes_of_ddp()
        self._members = Members(module, self.parameters_to_ignore)
        unsupported = {"delay_all_reduce_named_params": delay_all_reduce_named_params is not None,
                       "param_to_hook_all_reduce": param_to_hook_all_reduce is not None,
                       "lazy_bucket_allocation": lazy_bucket_allocation}
        refusal = (self._refuse_options(device_ids, output_device, [name for name, is_set in unsupported.items() if is_set])
                   or refusal_of(mixed_precision) or self._refuse_module())
        try:
            self._group = connect(self.process_group, timeout, share_memory, store, None if refusal is None else str(refusal))
        except RuntimeError:
            if refusal is not None:
                raise refusal from None
            raise
        if mixed_precision is not None:
            self.mixed_precision = mixed_precision
            self._mixed = MixedPrecision(mixed_precision, self._members, [each for _, each in self._buffers_to_send()])
            self._mixed.watch(module)
        self._sends_parameters = bool(init_sync)
        self._make_reducer()

    # ---- Construction ----

    def _set_bucket_caps(self, cap_mb, cap_mb_list):
        first = getattr(dist, "_DEFAULT_FIRST_BUCKET_BYTES", FIRST_BUCKET_BYTES)
        self.bucket_bytes_cap = int((BUCKET_CAP_MB if cap_mb is None else cap_mb) * MIB)
        self.bucket_bytes_cap_list = [int(each * MIB) for each in cap_mb_list or ()]
        limits = self.bucket_bytes_cap_list or ([first, self.bucket_bytes_cap] if cap_mb is None else [self.bucket_bytes_cap])
        self._bucket_limits = [max(1, each) for each in limits]

    def _set_attributes_of_ddp(self):
        """What libraries read of a DistributedDataParallel."""
        first = next(iter(self.module.parameters()), torch.empty(0))
        self.device, self.device_type = first.device, first.device.type
        self.is_multi_device_module, self.mixed_precision, self._mixed = False, None, None
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        self.broadcast_bucket_size = 250 * MIB
        self.use_side_stream_for_tensor_copies = False
        self._use_python_reducer = self._delay_all_reduce_all_params = False
        self._use_replicated_tensor_module = False
        self._delay_all_reduce_params, self._delay_grad_buffer = [], None
        self._has_begun = self._has_rebuilt_buckets = False
        self._is_armed_by_hand = self._is_forward_open = False
        self._step_optimizers = None
        self._is_joining = self._sends_buffers = False
        self.num_iterations = 0
        self.reducer, self._times = ReducerFace(self), Times(self)

    def _refuse_options(self, device_ids, output_device, unsupported):
        """The error of an option, or None."""
        if device_ids or output_device is not None:
            return ValueError("device_ids and output_device are for modules on GPUs, which lockstep.torch does not train yet: "
                              "leave them out")
        for name in unsupported:
            return NotImplementedError("lockstep.torch.DistributedDataParallel has no %s: %s" % (name, UNSUPPORTED[name]))
        if self._order not in ("native", "rank"):
            return ValueError("order is %r, and has to be \"native\" or \"rank\"" % (self._order,))
        if self._verify_payload and self._order != "rank":
            return ValueError("verify_payload checks sums in rank order: give order=\"rank\", too")
        return None

    def _refuse_module(self):
        """The error of a module that cannot be trained, or None."""
        parameters = self._members.named
        for name, each in parameters:
            if isinstance(each, torch.nn.parameter.UninitializedParameter):
                return RuntimeError("parameter %s is uninitialized: run a forward of the module first, and wrap it then" % name)
            if each.device.type != "cpu":
                return RuntimeError("parameter %s is on %s, and lockstep.torch trains modules on CPUs: move the module first, or "
                                    "take torch.nn.parallel.DistributedDataParallel" % (name, each.device))
            if hasattr(each, "_in_backward_optimizers") and handles_of_optimizers() is None:
                return NotImplementedError("parameter %s has an optimizer that steps in the backward, before gradients are "
                                           "averaged: step after the backward" % name)
        trained = [(name, each) for name, each in parameters if each.requires_grad]
        if not trained:
            return RuntimeError("DistributedDataParallel is not needed when a module doesn't have any parameter that requires "
                                "a gradient.")
        return None

    def _buffers_to_send(self):
        return [(name, each) for name, each in self.module.named_buffers() if name not in self.parameters_to_ignore]

    def _make_reducer(self):
        parameters = [(name, each, self._members.has_sparse_gradients(each))
                      for name, each in self._members.named]
        buffers = self._buffers_to_send() if self._sends_parameters or self.forward_sync_buffers else []
        options = {"find_unused_parameters": bool(self.find_unused_parameters and not self.static_graph),
                   "static_graph": bool(self.static_graph),
                   "gradient_as_bucket_view": bool(self.gradient_as_bucket_view),
                   "broadcast_buffers": bool(self.forward_sync_buffers), "bucket_limits": self._bucket_limits,
                   "rank_order": self._order == "rank", "verify_payload": bool(self._verify_payload),
                   "skip_unused_buckets": bool(self.skip_all_reduce_unused_params and self.find_unused_parameters
                                               and not self.static_graph),
                   # As DDP does: in dynamic mode the order of gradients says little.
                   "rebuild_buckets": bool(self.static_graph or not self.find_unused_parameters),
                   "reduce_dtype": "" if self._mixed is None else self._mixed.reduced_by_name()}
        self._has_buffers = bool(buffers)
        keep(self, self.process_group, self._group)
        shared = self._members_of_wrappers_inside()
        for _, each in self._members.named:
            if each.requires_grad and id(each) not in shared:
                extension.take_over(each)  # an older wrapper raises in its next forward
        self._reducer = extension.Reducer(parameters, [(name, each, False) for name, each in buffers], self._sends_parameters,
                                          options, self._hook, self._group)
        self._reducer.when_complete(self._step_optimizers)
        interrupts.watch(self._reducer)

    def _members_of_wrappers_inside(self):
        """The parameters, by their ids, that wrappers inside of the module reduce as well."""
        inside = [part for part in self.module.modules() if isinstance(part, DistributedDataParallel)]
        return {id(each) for part in inside for _, each in part._members.named}

    def _make_reducer_anew(self):
        """With other options. A collective operation."""
        self._reducer.close()
        self._make_reducer()

    # ---- Forwards ----

    def forward(self, *inputs, **kwargs):
        if torch.is_grad_enabled() and not self._members.is_whole():
            if self._members.are_lent():
                return self.module(*inputs, **kwargs)
            raise RuntimeError("a parameter of the module was replaced after it was wrapped, and the new one would not be "
                               "reduced: change the module first, and wrap it then")
        if torch.is_grad_enabled() and is_inside_of_backward() and self._reducer.is_busy():
            return self.module(*inputs, **kwargs)  # a checkpoint around the wrapper recomputes it
        inputs, kwargs = self._pre_forward(*inputs, **kwargs)
        # DDP's own context loads torch._dynamo, which takes seconds, and is of no use before that is loaded.
        with self._inside_ddp_forward() if "torch._dynamo" in sys.modules else active_module(self):
            if self._mixed is not None:
                output = self._mixed.run(self.module, inputs, kwargs)
            else:
                output = self.module(*inputs, **kwargs)
        return self._post_forward(output)

    def _pre_forward(self, *inputs, **kwargs):
        if self._mixed is not None:
            inputs, kwargs = self._mixed.inputs(inputs, kwargs)
        if not torch.is_grad_enabled():
            return inputs, kwargs
        self._begin_forward(self.require_backward_grad_sync)
        self._is_forward_open = self.require_backward_grad_sync
        return inputs, kwargs

    def _begin_forward(self, is_synced):
        if not self._has_begun:
            self._begin_training()
        if is_synced:
            self._times.forward_begins(self.num_iterations)
        buffers = [each for _, each in self._buffers_to_send()] if self._has_buffers else []
        self._sends_buffers = self.forward_sync_buffers and self.require_forward_param_sync
        sends_again = self._sends_buffers and not self._sends_buffers_by_hook()
        if self._join_config.enable:
            self._tell_of_forward(is_synced, self._reducer.sends_buffers(sends_again))
        self._reducer.begin_forward(buffers, is_synced, sends_again)
        if self._sends_buffers:
            self._run_buffer_hook(torchs._BufferCommHookLocation.PRE_FORWARD)
        self.require_forward_param_sync = is_synced
        if is_synced:
            self.num_iterations += 1

    def _begin_training(self):
        """Before the first forward: from now on optimizers that were put on parameters step when these are averaged."""
        self._has_begun = True
        self._step_optimizers = optimizers_in_backward([each for _, each in self._members.named])
        if self._step_optimizers is not None:
            self._reducer.when_complete(self._step_optimizers)

    def _post_forward(self, output):
        # Asked now, as DistributedDataParallel does: a library may have changed it within the forward. The forward is not open
        # any more where a backward inside of it was the pass's.
        is_synced = torch.is_grad_enabled() and self.require_backward_grad_sync and self._is_forward_open
        self._is_forward_open = False
        if torch.is_grad_enabled() and self._sends_buffers:
            self._run_buffer_hook(torchs._BufferCommHookLocation.POST_FORWARD)
        if not is_synced:
            return output
        if type(output) is torch.Tensor:
            return self._reducer.arm([output])[0] if output.requires_grad else output
        outputs = Outputs(output)
        if outputs.hides:
            self._reducer.arm([])
        if not outputs.tensors:
            return output
        return outputs.replaced_by(self._reducer.arm(outputs.tensors))

    def _arm_by_hand(self):
        """The next backward is a pass's, for those who begin passes by themselves, also inside of a forward."""
        if not self._is_forward_open:
            self._begin_forward(True)
        self._is_forward_open = False
        self._reducer.arm([])

    # ---- Communication hooks ----

    def register_comm_hook(self, state, hook):
        """Takes a hook of torch.distributed.algorithms.ddp_comm_hooks, or one of yours, before the first forward. A collective
        operation."""
        self._check_comm_hook(hook)
        self._set_hook(state, hook, getattr(hook, "__qualname__", type(hook).__qualname__))

    def _register_builtin_comm_hook(self, comm_hook_type):
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        plain = comm_hook_type == dist.BuiltinCommHookType.ALLREDUCE
        hook = default_hooks.allreduce_hook if plain else default_hooks.fp16_compress_hook
        self._set_hook(self.process_group, hook, str(comm_hook_type))

    def _set_hook(self, state, hook, name):
        if self._hook is not None or (self._mixed is not None and self._mixed.reduce_dtype is not None):
            raise RuntimeError("register_comm_hook or register_builtin_comm_hook can only be called once.")
        self._hook = (state, hook, name)
        self._make_reducer_anew()

    def _register_fused_optim(self, *arguments, **options):
        raise NotImplementedError("lockstep.torch has no optimizers within the backward: step after it")

    # ---- What else DistributedDataParallel has ----

    def _set_static_graph(self):
        if self.static_graph:
            return
        if self._has_begun:
            self._log_and_throw(RuntimeError, "_set_static_graph should be called before training loop starts")
        self.static_graph = True
        self._make_reducer_anew()

    def _set_ddp_sink_clone(self, val):
        pass  # outputs are never cloned

    def _remove_autograd_hooks(self):
        self._reducer.close()

    def _check_reducer_finalized(self):
        self._reducer.check_complete()

    def _clear_grad_buffer(self):
        pass

    def train(self, mode=True):
        return torch.nn.Module.train(self, mode)

    @property
    def _distributed_rank(self):
        return dist.get_rank(self.process_group)

    # ---- After a failure ----

    def reset(self, process_group=None, timeout=None, store=None):
        """Goes on after a failure, or with other ranks. All ranks of the new process group call it: first
        torch.distributed.destroy_process_group(), then init_process_group() with those that are left. Gradients stay as they
        are; parameters and buffers become those of the new rank 0. A collective operation."""
        self.process_group = process_group if process_group is not None else dist.distributed_c10d._get_default_group()
        group = connect(self.process_group, self._timeout if timeout is None else timeout, self._share_memory, store)
        self._reducer.reset(group)
        self._group = group
        keep(self, self.process_group, group)
        self._is_forward_open = False
        self.require_forward_param_sync = True

    def flight_record(self):
        """The last collectives of this rank, as text; `lockstep diagnose` joins those of all ranks."""
        return self._reducer.flight_record()

    def diagnose(self, patience=5.0):
        """After a failure: a report from the flight records that the ranks have left, waiting so many seconds for them."""
        return self._reducer.diagnose(patience)

    # ---- Pickle ----

    def __getstate__(self):
        self._check_default_group()
        state = dict(self.__dict__)
        for name in ("process_group", "reducer", "_logger", "_times", "_reducer", "_group", "_members", "_hook",
                     "_step_optimizers"):
            state.pop(name, None)
        return state

    def __setstate__(self, state):
        torch.nn.Module.__setstate__(self, state)
        self.process_group = dist.distributed_c10d._get_default_group()
        self._hook = self._step_optimizers = None
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        self.reducer, self._times = ReducerFace(self), Times(self)
        self._members = Members(self.module, self.parameters_to_ignore)
        self._group = connect(self.process_group, self._timeout, self._share_memory)
        self._sends_parameters = True
        self._make_reducer()
