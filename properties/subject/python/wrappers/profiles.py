"""What the profiles of this folder share: guesses, and conditions that exclude steps of programs."""

import contextlib
import importlib.util
import os

import torch.distributed


def example(name):
    """The module of the folder `examples`."""
    path = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "examples", name + ".py")
    found = importlib.util.spec_from_file_location("example_" + name, path)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def guess(can, seen=None, **declared):
    """Marks a function as a wrapper with the declaration that one would guess. `seen`: a text of the failure that the
    fuzzer finds; None: the wrapper does what one guesses. The others are attributes of the function, as `wrap` has them."""

    def mark(function):
        function.can, function.seen = can, seen
        for name, value in declared.items():
            setattr(function, name, value)
        return function

    return mark


# What a step of a program is excluded for.
def uneven_calls(program, step):
    """Ranks call different things, as one forward more. Each forward gathers parameters, so that ranks have to go together."""
    return not program.is_even(step, program.calls)


def uneven_use(program, step):
    """Some rank has a gradient for a parameter and another one has not, in the step or in the window that it ends."""
    return not program.is_even(step, program.window_uses)


def uneven_backwards(program, step):
    """A backward brings gradients for other parameters on some rank, where each backward reduces what it has."""
    return not program.is_even(step, program.backward_uses)


def evaluation_before_a_step(program, step):
    """A forward without gradients comes between the backward and the optimizer's step."""
    return program.kind(step) == "no_grad" and program.is_step_due(step)


def zero_grad_after_an_evaluation(program, step):
    """The module's zero_grad() follows a forward without gradients, after which the module has no gradients to clear."""
    return step > 0 and program.kind(step - 1) == "no_grad" and program.zeroes(step)


def zeroed_window(program, step):
    """Gradients are dropped that a step under no_sync has left."""
    return step > 0 and program.kind(step - 1) != "synced" and has_window(program, step - 1) and program.zeroes(step)


def kept_gradients(program, step):
    """Gradients of the step before are not dropped, so that those of this step are added."""
    return step > 0 and not program.zeroes(step)


def has_window(program, step):
    while step >= 0 and program.kind(step) == "no_grad":
        step -= 1
    return step >= 0 and program.kind(step) == "no_sync"


def unused_parameters(program, step):
    """Some rank has no gradient for a parameter that is trained."""
    trained = {program.owners[each["name"]] for each in program.parameters if each.get("requires_grad")}
    return program.kind(step) != "no_grad" and any(program.uses(rank, step) != trained for rank in range(program.world))


def one_rank(program, step):
    """There is one rank, for which the library wraps nothing."""
    return program.world == 1


def uneven_order(program, step):
    """Ranks use parameters in different orders. The library reduces gradients as they come, so that ranks have to agree."""

    def used(rank, step):
        forwards = program.ranks[rank][step]["forwards"]
        return [[program.owners[node[2]] for node in forward["nodes"] if node[0] == "use"] for forward in forwards]

    return not program.is_even(step, used)


def once_for_group(make):
    """Makes something once for the process group, which ranks keep from case to case: new groups take their time to connect."""
    made = {}

    def get():
        group = torch.distributed.group.WORLD
        if made.get("group") is not group:
            made.update(group=group, value=make())
        return made["value"]

    return get


def set_for_a_while(setter):
    """A context in which the setter was called with False, and after which it is called with True."""

    @contextlib.contextmanager
    def context():
        setter(False)
        try:
            yield
        finally:
            setter(True)

    return context
