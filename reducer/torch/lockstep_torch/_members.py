"""The parameters of a module that a wrapper reduces, and their places in it."""

import contextlib
import operator

import torch


def is_inside_of_backward():
    """Whether this thread runs a backward; PyTorch 1.13 does not tell."""
    ask = getattr(torch._C, "_current_graph_task_id", None)
    return ask is not None and ask() != -1


class Members:
    """The parameters of a module, as they were when it was wrapped. is_whole() costs some 60 ns each."""

    def __init__(self, module, ignored):
        self.named = [(name, each) for name, each in module.named_parameters() if name not in ignored]
        wanted = {id(each) for _, each in self.named}
        self._places, self._names, self._values = [], [], []
        for part in module.modules():
            for name, value in part._parameters.items():
                if value is not None and id(value) in wanted:
                    self._places.append(part._parameters)
                    self._names.append(name)
                    self._values.append(value)
        self._sparse = {id(part.weight) for part in module.modules()
                        if isinstance(part, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and part.sparse}

    def has_sparse_gradients(self, parameter):
        return id(parameter) in self._sparse

    def is_whole(self):
        return all(map(operator.is_, map(dict.get, self._places, self._names), self._values))

    def are_lent(self):
        """Whether torch.func.functional_call() has put tensors in the places of some: a forward is then about those alone."""
        now = map(dict.get, self._places, self._names)
        return all(one is known or isinstance(one, torch.Tensor) and not isinstance(one, torch.nn.Parameter)
                   for one, known in zip(now, self._values))

    @contextlib.contextmanager
    def cast_to(self, dtype):
        """Within it the module has, in the places of its parameters, copies in this dtype. A copy is a step of the graph,
        so its gradient comes to the parameter, in the parameter's own dtype."""
        copies = {id(value): value.to(dtype) for value in self._values if value.is_floating_point()}
        try:
            for place, name, value in zip(self._places, self._names, self._values):
                place[name] = copies.get(id(value), value)
            yield
        finally:
            for place, name, value in zip(self._places, self._names, self._values):
                place[name] = value

    def own_of(self, part):
        """Those that this submodule itself has, by their names in it."""
        return {name: value for place, name, value in zip(self._places, self._names, self._values)
                if place is part._parameters}
