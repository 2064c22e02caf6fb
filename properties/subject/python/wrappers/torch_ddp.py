"""PyTorch's DistributedDataParallel, as the example has it. It gives all ranks the weights of rank 0, and its forwards see
what the optimizer has done."""

from profiles import example, guess, unused_parameters

ddp = example("ddp")


def wrap(module, **options):
    return ddp.wrap(module, **options)


wrap.contract = ddp.wrap.contract
wrap.can = ddp.wrap.can + " steps broadcast"


@guess("broadcast")
def ranks_begin_with_other_weights(module):
    return ddp.wrap(module)


@guess("no_grad")
def evaluation_keeps_gradients(module):
    return ddp.wrap(module)


@guess("no_grad")
def zero_grad_after_an_evaluation(module):
    return ddp.wrap(module)


@guess("no_grad steps")
def evaluation_before_the_optimizer_steps(module):
    return ddp.wrap(module)


@guess("no_sync")
def window_is_zeroed(module):
    return ddp.wrap(module)


@guess("dynamic", contract="torch")
def ranks_use_other_parameters(module, **options):
    return ddp.wrap(module, **options)


@guess("several_backwards several_forwards", contract="torch")
def two_losses_before_a_step(module):
    return ddp.wrap(module)


@guess("no_sync", "bits", no_sync="backward", excludes=[unused_parameters])
def no_sync_around_the_backward(module):
    return ddp.wrap(module)


@guess("no_sync")
def no_sync_around_the_forward(module):
    return ddp.wrap(module)


@guess("", "bits", order="Gloo's ring", scale="multiply before")
def each_gradient_is_added_alike(module):
    """Buckets have another layout after the first step, and an element's place in its bucket decides the order."""
    return ddp.wrap(module)
