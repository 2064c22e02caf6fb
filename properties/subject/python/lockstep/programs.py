"""What all ranks of a case do, for conditions with which a wrapper's profile excludes programs.

A condition is a function of a Program and of the number of a step. A case is trained up to the first step for which one
of the conditions in the function's attribute `excludes` holds:

    def uneven_use(program, step):
        return not program.is_even(step, program.window_uses)

    wrap.excludes = [uneven_use]
"""

import os


def note_excluded(path, left_out, steps, why):
    """Adds a line to the file: a case of so many steps was cut by this condition."""
    with open(path, "a", encoding="utf-8") as lines:
        lines.write("%d of %d steps: %s\n" % (left_out, steps, why))


def count_excluded(path):
    """How many cases each condition has cut, by its name, in a file of note_excluded()."""
    counts = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                why = line.strip().split(": ", 1)[-1]
                counts[why] = counts.get(why, 0) + 1
    return counts


def uses_in(nodes):
    """The names of the parameters that the nodes use."""
    names = set()
    for kind, _, *rest in nodes:
        if kind == "use":
            names.add(rest[0])
        if kind == "checkpoint":
            names |= uses_in(rest[0])
    return names


def reached(nodes, roots):
    """The names of the parameters that get a gradient when a backward begins at the roots, which are numbers of nodes."""
    names, left, seen = set(), list(roots), set()
    while left:
        number = left.pop()
        if number in seen:
            continue
        seen.add(number)
        kind, inputs, *rest = nodes[number]
        if kind == "use":
            names.add(rest[0])
        if kind == "checkpoint":
            names |= uses_in(rest[0])
        if kind not in ("stop", "detach"):
            left += [node for node, _ in inputs]
    return names


def steps_late(step):
    """Whether the optimizer of a wrapper that declares `steps` waits, after this synced step, until the next step begins that
    has a backward, so that forwards without gradients come between."""
    return step % 2 == 1


class Program:
    """`ranks`: by rank the steps of the program, as a rank's job has them: kind, calls, forwards. `world`: how many ranks;
    `options`: those that the wrapper is given; `parameters`: as lockstep.model.Model takes them."""

    def __init__(self, job, ranks):
        self.ranks = ranks
        self.world, self.options, self.parameters = job["world"], job["options"], job["parameters"]
        self.owners = {each["name"]: each.get("same_as", each["name"]) for each in self.parameters}

    def kind(self, step):
        """"synced", "no_sync" or "no_grad"."""
        return self.ranks[0][step]["kind"]

    def calls(self, rank, step):
        """The names of the rank's calls in order, as "zero_grad", "forward", "backward"."""
        return [call[0] for call in self.ranks[rank][step]["calls"]]

    def backward_uses(self, rank, step):
        """The parameters that get a gradient from each backward of the step, in order."""
        work, kept, uses = self.ranks[rank][step], [], []
        for name, _, *rest in work["calls"]:
            if name == "forward" and rest[1] != "no_grad" and not work["forwards"][rest[0]]["discard"]:
                kept += [(rest[0], node) for node, _ in work["forwards"][rest[0]]["outputs"]]
            if name == "backward":
                names = set()
                for number, node in (kept[root] for root in rest[0]):
                    names |= reached(work["forwards"][number]["nodes"], [node])
                uses.append({self.owners[each] for each in names})
        return uses

    def uses(self, rank, step):
        """The parameters that get a gradient from the backwards of the step."""
        return set().union(*self.backward_uses(rank, step))

    def window_uses(self, rank, step):
        """The parameters that get a gradient in the step, or in the steps under no_sync just before it."""
        names = self.uses(rank, step)
        while step > 0 and self.kind(step - 1) != "synced":
            step -= 1
            names |= self.uses(rank, step)
        return names

    def is_even(self, step, what):
        """Whether a function of rank and step, as self.calls, is the same for all ranks."""
        return all(what(rank, step) == what(0, step) for rank in range(1, self.world))

    def is_step_due(self, step):
        """Whether the optimizer has not stepped yet for the gradients that are there when the step begins."""
        before = [each for each in range(step) if self.kind(each) != "no_grad"]
        return bool(before) and self.kind(before[-1]) == "synced" and steps_late(before[-1])

    def zeroes(self, step):
        """Whether some rank drops gradients in the step."""
        return any(call[0] == "zero_grad" and call[2] != "not" for rank in self.ranks for call in rank[step]["calls"])


def uneven_forwards(program, step):
    """Some rank runs other forwards than another one, so that a wrapper cannot broadcast in each."""
    def kinds(rank, step):
        return [call[3] for call in program.ranks[rank][step]["calls"] if call[0] == "forward"]

    return not program.is_even(step, kinds)


def first_excluded(program, conditions):
    """The first step for which a condition holds, and its name in words; the number of steps and None without one."""
    steps = len(program.ranks[0])
    for step in range(steps):
        for condition in conditions:
            if condition(program, step):
                return step, condition.__name__.replace("_", " ")
    return steps, None
