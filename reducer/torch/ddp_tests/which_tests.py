"""Which tests of distributed_test.py use DDP, by themselves or through what they call."""

import ast

DDP = "DistributedDataParallel"


def names_used(definition):
    """The names that a function or class mentions: plain ones, and members of self, cls and of nn.parallel."""
    used = set()
    for node in ast.walk(definition):
        if isinstance(node, ast.Name):
            used.add(node.id)
        elif isinstance(node, ast.Attribute) and (node.attr == DDP or isinstance(node.value, ast.Name)):
            if node.attr == DDP or node.value.id in ("self", "cls"):
                used.add(node.attr)
    return used


def definitions(module):
    """What each function, method and top-level class uses, by its name."""
    uses = {}
    for node in module.body:
        if isinstance(node, ast.ClassDef):
            uses.setdefault(node.name, set()).update(names_used(node))
    for node in ast.walk(module):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            uses.setdefault(node.name, set()).update(names_used(node))
    # Names of tests never lead on: a class that holds all tests would make each of them one that uses DDP.
    return {name: {other for other in used if not other.startswith("test_")} for name, used in uses.items()}


def users_of_ddp(text):
    """The names of the test functions in this source that use DDP."""
    uses = definitions(ast.parse(text))
    uses.pop("DistributedTest", None)
    reached = {DDP}
    while True:
        more = {name for name, used in uses.items() if name not in reached and used & reached}
        if not more:
            return sorted(name for name in reached if name.startswith("test_"))
        reached |= more


def expand(functions, available):
    """The tests of a class that come of these functions: a parametrized one stands there once for each set of values."""
    parametrized = tuple(name + "_" for name in functions if name not in available)
    return [test for test in available if test in functions or (parametrized and test.startswith(parametrized))]
