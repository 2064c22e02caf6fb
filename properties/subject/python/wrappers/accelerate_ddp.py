"""DistributedDataParallel as Accelerate prepares it, with accelerator.backward() and accelerator.no_sync()."""

from launched import Launched, set_environment
from profiles import guess, one_rank, unused_parameters

from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate.utils import DistributedDataParallelKwargs


def wrap(module, **options):
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()
    set_environment()
    accelerator = Accelerator(cpu=True, kwargs_handlers=[DistributedDataParallelKwargs(**options)])
    prepared = accelerator.prepare(module)
    return Launched(prepared, accelerator.backward, lambda: accelerator.no_sync(prepared))


wrap.contract = "torch"
wrap.can = "dynamic static views no_sync no_grad several_forwards discard keep_outputs shared frozen float64 strides steps broadcast"
wrap.excludes = [one_rank]


@guess("no_sync", "bits", no_sync="backward", excludes=[unused_parameters])
def no_sync_around_the_backward(module):
    return wrap(module)


@guess("no_sync")
def no_sync_around_the_forward(module):
    return wrap(module)


@guess("broadcast")
def ranks_begin_with_other_weights(module):
    return wrap(module)


@guess("no_sync")
def window_is_zeroed(module):
    return wrap(module)
