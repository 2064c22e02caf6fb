#!/usr/bin/env python3
"""Makes mutants: small changes of single places of the reducer, all compiled in, of which one is on.

  mutate.py --source ROOT --files FILE --out FOLDER --list FILE.cc --count N|all --seed S --equivalent FILE [--done LOG]
  mutate.py --source ROOT --files FILE --table [--equivalent FILE] [--done LOG]     lists those that could be made

FILES names the sources below ROOT, one per line; all are copied to FOLDER, with N mutants in those that MUTATED names.
The list is the table of faults/seeded/seeded.h, so that `seeded:ID` switches a mutant on as it does a planted bug. An id
is made from the text of its line and the change, so it stays when other lines move. EQUIVALENT has lines `ID reason`:
mutants that nobody can tell from the original; they are not made. Neither are those that LOG has a trial of, the log of
`lockstep eval`: with a count of `all`, as many are made as there are places for, and the rest in a later build.

The sources are not parsed. Comments and strings are blanked, and what is left is formatted by clang-format, so a binary
operator has blanks around it, and template brackets have none.
"""
import argparse
import functools
import hashlib
import json
import os
import random
import re
import sys

# nccl_api.cc loads a library; the simulator has none to load.
MUTATED = re.compile(r"^reducer/(?!comm/nccl/nccl_api\.cc)(?:core/|bucket/|hooks/|comm/(?:nccl/)?)?[a-z_0-9]+\.cc$")
SPACES = re.compile(r"\s+")
# What a mutant may evaluate a second time, to see whether it makes a difference: no assignment, and no call but those
# without arguments, which ask for something by the project's rules of naming.
IMPURE = re.compile(r"\+\+|--|(?<![=!<>])=(?!=)|\w\((?!\))|\bnew\b|co_await")
ITERATOR = re.compile(r"[\w.>-]*(?:begin|data)\(\)")
# A parameter of a declaration: its type, its name, its default. A reference or pointer is written at the type.
PARAMETER = re.compile(r"^((?:const )?[A-Za-z_][\w:]*(?:<.*>)?[&*]*) \w+(?: = .*)?$", re.S)
DECLARES = re.compile(r"^\s*(?:const\s+)?[A-Za-z_][\w:<>,\s*&]*[\s*&]\w+\s*(?:=(?!=)|\{)")


class Mutant:
    def __init__(self, path, start, end, text, what):
        self.path, self.start, self.end, self.text, self.what = path, start, end, text, what
        self.id = self.line = self.original = None


def blanked(source):
    """The source with comments, strings and preprocessor lines replaced by blanks of the same length."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))
    pattern = r'//[^\n]*|/\*.*?\*/|R"\(.*?\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|^[ \t]*#[^\n]*(?:\\\n[^\n]*)*'
    return re.sub(pattern, blank, source, flags=re.S | re.M)


def closing(code, at):
    """The place of the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(code)):
        depth += (code[i] in "([{") - (code[i] in ")]}")
        if depth == 0:
            return i
    return -1


def outside_of_functions(code):
    """Where nothing is mutated: at namespace scope, and in constexpr functions."""
    spans, last = [], 0
    for match in re.finditer(r"\{", code):
        if match.start() < last:
            continue
        head = re.split(r"[;{}]", code[last:match.start()])[-1]
        if re.search(r"\b(namespace|struct|class|enum|union)\b", head) or not re.search(r"\)[^()]*$", head):
            if re.search(r"\bnamespace\b", head):
                continue
            end = closing(code, match.start())
            spans.append((last, end))
            last = end
            continue
        end = closing(code, match.start())
        spans.append((last, end if "constexpr" in head else match.start()))
        last = end
    spans.append((last, len(code)))
    return spans


def changed_operators(expression):
    """Each (changed expression, what was changed) of an expression whose strings are blanked."""
    swaps = [(r" < ", " <= ", "a boundary"), (r" <= ", " < ", "a boundary"), (r" > ", " >= ", "a boundary"),
             (r" >= ", " > ", "a boundary"), (r" == ", " != ", "a comparison"), (r" != ", " == ", "a comparison"),
             (r" && ", " || ", "and for or"), (r" \|\| ", " && ", "or for and"), (r" \+ ", " - ", "a sign"),
             (r" - ", " + ", "a sign")]
    for pattern, new, what in swaps:
        for match in re.finditer(pattern, expression):
            yield match.start(), match.end(), new, what
    for match in re.finditer(r"(?<![\w.])(\d+)(?![\w.'])", expression):
        yield match.start(), match.end(), str(int(match.group(1)) + 1), "a constant"


def switched(original, mutated, is_condition):
    mutant = "LOCKSTEP_MUTANT"
    if not is_condition:
        return f"{mutant}_VALUE(@ID@, ({original}), ({mutated}))"
    both = "" if IMPURE.search(original) else "_PURE"
    return f"{mutant}_CONDITION{both}(@ID@, ({original}), ({mutated}))"


def mutants_of_expression(path, source, code, start, end, is_condition):
    expression, blank = source[start:end], code[start:end]
    if is_condition:
        yield Mutant(path, start, end, switched(expression, f"!({expression})", True), "a condition negated")
    is_text = '"' in expression or "string" in expression
    is_single = is_condition and "&&" not in blank and "||" not in blank
    for at, to, new, what in changed_operators(blank):
        if what == "a sign" and is_text or what == "a comparison" and is_single:
            continue  # texts are not subtracted; a single comparison is negated already
        if what == "a sign" and ITERATOR.match(blank, to):
            continue  # two iterators are not added
        mutated = expression[:at] + new + expression[to:]
        yield Mutant(path, start, end, switched(expression, mutated, is_condition),
                     f"{what} ({blank[at:to].strip()} -> {new.strip()})")


def mutants_of_conditions(path, source, code):
    for match in re.finditer(r"\b(?:if|while) \(", code):
        start, end = match.end(), closing(code, match.end() - 1)
        text = code[start:end]
        if ";" in text or DECLARES.search(text) or "constexpr" in code[match.start() - 12:match.start()]:
            continue
        yield from mutants_of_expression(path, source, code, start, end, True)


def mutants_of_returns(path, source, code):
    for match in re.finditer(r"\breturn ([^;{}]+);", code):
        if re.search(r"\[|^LOCKSTEP", match.group(1)):
            continue
        yield from mutants_of_expression(path, source, code, match.start(1), match.end(1), False)


STATEMENT = re.compile(
    r"(?<=[;{}:)\n])\n[ ]+((?:[\w.:\[\]]|->|\(\))+\([^;{}]*\)|(?:\+\+|--)[\w.\->\[\]]+"
    r"|(?:[\w.\[\]]|->)+ (?:[-+|&]?=) [^;{}]+);(?=\n)")


def mutants_of_statements(path, source, code):
    for match in STATEMENT.finditer(code):
        text = match.group(1)
        if re.match(r"(?:return|delete|throw|if|for|while|switch|case|LOCKSTEP_|static_assert|new )", text):
            continue
        start, end = match.start(1), match.end(1) + 1
        before = code[:match.start() + 1].rstrip()
        if not before.endswith((";", "{", "}")):
            continue  # the end of something longer, or the only statement of an if
        yield Mutant(path, start, end, f"LOCKSTEP_MUTANT_DROP(@ID@) {source[start:end]}", "a statement dropped")


def mutants_of_errors(path, source, code):
    for match in re.finditer(r"\bLOCKSTEP_RETURN_IF_ERROR\(", code):
        end = closing(code, match.end() - 1)
        yield Mutant(path, match.start(), end, f"LOCKSTEP_MUTANT_SWALLOW(@ID@, {source[match.end():end]}",
                     "an error swallowed")


def mutants_of_extremes(path, source, code):
    for match in re.finditer(r"\bstd::(min|max)\(", code):
        name = "MIN" if match.group(1) == "min" else "MAX"
        yield Mutant(path, match.start(), match.end() - 1, f"LOCKSTEP_MUTANT_{name}(@ID@)", "min for max or max for min")


def code_of(root, path):
    """A source, and the same without its comments and strings."""
    with open(os.path.join(root, path), encoding="utf-8") as file:
        source = file.read()
    return source, blanked(source)


def arguments(code, start, end):
    """Where each argument between two brackets begins and ends."""
    spans, depth, begin = [], 0, start
    for i in range(start, end + 1):
        if i == end or code[i] == "," and depth == 0:
            while begin < i and code[begin].isspace():
                begin += 1
            spans.append((begin, i))
            begin = i + 1
        elif code[i] in "([{" or code[i] == "<" and re.match(r"\w", code[i - 1]):
            depth += 1
        elif code[i] in ")]}" or code[i] == ">" and code[i - 1] not in "- " and depth > 0:
            depth -= 1
    return spans


def parameter_types(code, start, end):
    """The types of the parameters between two brackets, without const and &; None if it is no list of parameters."""
    types = []
    for begin, to in arguments(code, start, end):
        match = PARAMETER.match(SPACES.sub(" ", code[begin:to]).strip())
        if not match or match.group(1) in ("return", "const", "new", "delete", "case"):
            return None
        types.append(re.sub(r"^const |&+$", "", match.group(1)))
    return tuple(types)


def read_signatures(codes):
    """By name and number of parameters: the lists of types of all functions of that name, in all sources."""
    signatures = {}
    for code in codes:
        for match in re.finditer(r"\b(\w+)\(", code):
            end = closing(code, match.end() - 1)
            types = parameter_types(code, match.end(), end) if end > 0 else None
            if types and len(types) > 1:
                signatures.setdefault((match.group(1), len(types)), set()).add(types)
    return signatures


def mutants_of_arguments(path, source, code, signatures):
    # Not those of the standard library, nor those of a result whose type nobody knows here.
    for match in re.finditer(r"(?<!std::)(?<!\)\.)\b(\w+)\(", code):
        end = closing(code, match.end() - 1)
        if end < 0 or parameter_types(code, match.end(), end):
            continue
        spans = arguments(code, match.end(), end)
        declared = signatures.get((match.group(1), len(spans)), ())
        for i in range(len(spans) - 1):
            (start, middle), (second, last) = spans[i], spans[i + 1]
            a, b = source[start:middle].strip(), source[second:last].strip()
            if not declared or any(types[i] != types[i + 1] for types in declared):
                continue
            if a == b or any(IMPURE.search(each) or re.search(r"[\[{\"]", each) for each in (a, b)):
                continue
            yield Mutant(path, start, last, f"LOCKSTEP_MUTANT_SWAP(@ID@, {a}, {b})", f"arguments swapped ({a}, {b})")


def all_mutants(root, files):
    found = []
    signatures = read_signatures(code_of(root, path)[1] for path in files)
    for path in files:
        if not MUTATED.match(path):
            continue
        source, code = code_of(root, path)
        if "LOCKSTEP_NS" not in source:
            continue  # all builds of the reducer share it
        outside = outside_of_functions(code)
        seen = {}
        makers = (mutants_of_conditions, mutants_of_returns, mutants_of_statements, mutants_of_errors,
                  mutants_of_extremes, functools.partial(mutants_of_arguments, signatures=signatures))
        for mutant in (m for make in makers for m in make(path, source, code)):
            if any(a <= mutant.start < b for a, b in outside):
                continue
            begin = source.rfind("\n", 0, mutant.start) + 1
            mutant.original = SPACES.sub(" ", source[begin:source.find("\n", mutant.end)]).strip()
            key = f"{path}|{mutant.original}|{mutant.what}"
            seen[key] = seen.get(key, 0) + 1
            mutant.id = "M" + hashlib.sha1(f"{key}|{seen[key]}".encode()).hexdigest()[:7]
            mutant.line = source.count("\n", 0, mutant.start) + 1
            found.append(mutant)
    return found


def chosen(mutants, count, seed):
    """`count` of them, or as many as can be, no two at one place."""
    order = sorted(mutants, key=lambda each: each.id)
    random.Random(seed).shuffle(order)
    taken, out = {}, []
    for mutant in order:
        spans = taken.setdefault(mutant.path, [])
        if count is not None and len(out) == count:
            break
        if all(mutant.end < a or b < mutant.start for a, b in spans):
            spans.append((mutant.start, mutant.end))
            out.append(mutant)
    return out


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def write_if_changed(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            if file.read() == text:
                return
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def read_equivalent(path):
    ids = set()
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            words = line.split("#")[0].split(None, 1)
            if words and len(words) != 2:
                sys.exit(f"mutate.py: {path}:{number}: a line is an id and the reason why nobody can tell the mutant")
            if words:
                ids.add(words[0])
    return ids


def read_done(path):
    """The mutants that a log of `lockstep eval` has trials of; none if there is no log yet."""
    ids = set()
    if not path or not os.path.exists(path):
        return ids
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):  # a torn last line counts for nothing
                ids.add(json.loads(line).get("bug"))
    return ids


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", required=True)
    parser.add_argument("--files", required=True)
    parser.add_argument("--out")
    parser.add_argument("--list")
    parser.add_argument("--count", default="0")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--equivalent")
    parser.add_argument("--done", default="")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    with open(options.files, encoding="utf-8") as file:
        files = file.read().split()
    mutants = all_mutants(options.source, files)
    equivalent = read_equivalent(options.equivalent) if options.equivalent else set()
    left_out = equivalent | read_done(options.done)
    if options.table:
        for mutant in mutants:
            if mutant.id not in left_out:
                print(f"{mutant.id} {mutant.path}:{mutant.line}: {mutant.what}: {mutant.original}")
        return
    known = {mutant.id for mutant in mutants}
    for gone in sorted(equivalent - known):
        print(f"mutate.py: {options.equivalent}: {gone} is no mutant of these sources any more: remove it", file=sys.stderr)
    count = None if options.count == "all" else int(options.count)
    picked = chosen([each for each in mutants if each.id not in left_out], count, options.seed)
    if count is not None and len(picked) < count:
        sys.exit(f"mutate.py: there are only {len(picked)} mutants at places of their own: ask for fewer")
    by_path = {}
    for mutant in picked:
        by_path.setdefault(mutant.path, []).append(mutant)
    for path in files:
        with open(os.path.join(options.source, path), encoding="utf-8") as file:
            text = file.read()
        for mutant in sorted(by_path.get(path, []), key=lambda each: -each.start):
            text = text[:mutant.start] + mutant.text.replace("@ID@", mutant.id) + text[mutant.end:]
        write_if_changed(os.path.join(options.out, path), text)
    entries = "".join(
        f"    {{{quoted(m.id)}, {quoted(f'{m.path}:{m.line}')}, \"any\", {quoted(f'{m.what}: {m.original}')}}},\n"
        for m in sorted(picked, key=lambda each: each.id))
    write_if_changed(options.list, f"""// Generated by faults/mutants/mutate.py.
#include "faults/seeded/seeded.h"

#include <array>

namespace lockstep::seeded {{

static constexpr std::array<Bug, {len(picked)}> kBugs = {{{{
{entries}}}}};

std::span<const Bug> bugs() {{ return kBugs; }}

}}  // namespace lockstep::seeded
""")


if __name__ == "__main__":
    main()
