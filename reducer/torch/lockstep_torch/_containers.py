"""The tensors in what a module takes and returns: lists, tuples, dicts, dataclasses, and what torch.utils._pytree knows."""

import copy
import dataclasses
import operator

import torch
from torch.utils import _pytree as pytree

KNOWN_LEAVES = (type(None), int, float, complex, str, bytes, bool, torch.dtype, torch.device, torch.Size)


class Outputs:
    """The tensors in what a forward returned that require a gradient, and whether something is there that may hide others."""

    def __init__(self, given):
        self.given, self.tensors, self.hides = given, [], False
        self._look(given)

    def _look(self, one):
        if isinstance(one, torch.Tensor):
            if one.requires_grad:
                self.tensors.append(one)
            return
        if isinstance(one, KNOWN_LEAVES):
            return
        parts = parts_of(one)
        if parts is None:
            self.hides = True
            return
        for part in parts:
            self._look(part)

    def replaced_by(self, tensors):
        """The same with these tensors in the places of those."""
        rest = iter(tensors)
        return self._rebuild(self.given, rest)

    def _rebuild(self, one, rest):
        if isinstance(one, torch.Tensor):
            return next(rest) if one.requires_grad else one
        if isinstance(one, KNOWN_LEAVES):
            return one
        parts = parts_of(one)
        if parts is None:
            return one
        return rebuilt(one, [self._rebuild(part, rest) for part in parts])


def is_dataclass(one):
    return dataclasses.is_dataclass(one) and not isinstance(one, type)


def parts_of(one):
    """What is in a container, in a fixed order; None for what is none."""
    if isinstance(one, (list, tuple)):
        return list(one)
    if isinstance(one, dict):
        return list(one.values())
    if is_dataclass(one):
        return [getattr(one, field.name) for field in dataclasses.fields(one) if hasattr(one, field.name)]
    leaves, _ = pytree.tree_flatten(one)
    return None if len(leaves) == 1 and leaves[0] is one else leaves


def rebuilt(one, parts):
    if all(map(operator.is_, parts, parts_of(one))):
        return one
    if type(one) in (list, tuple):
        return type(one)(parts)
    if isinstance(one, tuple) and hasattr(one, "_fields"):
        return type(one)(*parts)
    if isinstance(one, (list, tuple)):
        return type(one)(parts)
    if isinstance(one, dict):
        changed = copy.copy(one)
        for key, part in zip(one, parts):
            changed[key] = part
        return changed
    if is_dataclass(one):
        changed = copy.copy(one)
        names = [field.name for field in dataclasses.fields(one) if hasattr(one, field.name)]
        for name, part in zip(names, parts):
            object.__setattr__(changed, name, part)
        return changed
    return pytree.tree_unflatten(parts, pytree.tree_flatten(one)[1])


def with_tensors_by(one, call):
    """The same, with call(tensor) in the place of each tensor."""
    if isinstance(one, torch.Tensor):
        return call(one)
    parts = None if isinstance(one, KNOWN_LEAVES) else parts_of(one)
    return one if parts is None else rebuilt(one, [with_tensors_by(part, call) for part in parts])
