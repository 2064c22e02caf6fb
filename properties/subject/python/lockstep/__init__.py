"""Lockstep for Python: puts a wrapper of a torch.nn.Module, such as your own data-parallel one, under test.

    import lockstep

    def wrap(module, **options):
        return MyDataParallel(module)

    lockstep.fuzz(wrap, cases=200, seed=1)

fuzz() and replay() run the program `lockstep`, whose README says what a case is, and what is compared. The function has
to be at the top level of a file, because each rank is a process of its own, which loads that file; there fuzz() and
replay() do nothing.
"""

import inspect
import os
import subprocess
import sys
import tempfile

from lockstep.programs import count_excluded

__all__ = ["Failure", "Refused", "fuzz", "include", "replay", "main"]

is_rank = False  # whether this process is one of a rank (ranks.py)
USAGE = 1  # exit codes of the program
FAILURES = range(65, 76)
INTERRUPTED = 130
LEAST = 50  # cases; a run of fewer is no evidence


class Failure(AssertionError):
    """A case failed. `code` is the exit code of the program, which says how; `report` is what it printed."""

    def __init__(self, code, report):
        lines = [line for line in report.splitlines() if line.startswith(("FAIL: ", "case: ", "replay: "))]
        verdict = lines.pop(0)[len("FAIL: "):] if lines else "lockstep ended with exit code %d" % code
        super().__init__("\n".join([verdict, *lines, "the whole report is above, and in .report"]))
        self.code, self.report = code, report


class Refused(RuntimeError):
    """No case has a result: the function cannot be a subject, or the machine lacks something. `code`: that of the
    program."""

    def __init__(self, code, report):
        super().__init__(report)
        self.code = code


def program():
    """The program `lockstep`: in this package, or where a build or cmake --install has it."""
    here = os.path.dirname(os.path.abspath(__file__))
    for place in ("bin/lockstep", "../../lockstep", "../../../../bin/lockstep"):
        path = os.path.normpath(os.path.join(here, place))
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    raise Refused(USAGE, "the program lockstep is not beside this package (%s): install both from one tree" % here)


def include():
    """The folder of lockstep_subject.h, which reducers in shared libraries include."""
    here = os.path.dirname(os.path.abspath(__file__))
    for place in ("include", "../../../../include"):
        folder = os.path.normpath(os.path.join(here, place))
        if os.path.isfile(os.path.join(folder, "lockstep_subject.h")):
            return folder
    raise Refused(USAGE, "lockstep_subject.h is not beside this package (%s): a build has it in properties/subject" % here)


def subject_of(wrap):
    """The function's name for the program."""
    name, path = getattr(wrap, "__qualname__", None), None
    try:
        path = inspect.getsourcefile(wrap)
    except TypeError:
        pass
    if path is None or not os.path.isfile(path) or name is None or not name.isidentifier():
        raise Refused(USAGE, "%r is no function at the top level of a file, where each rank could load it" % (wrap,))
    return "python:%s:%s" % (os.path.relpath(path), name)


def copy_lines(source, lines):
    for line in source:
        print(line, end="", flush=True)
        lines.append(line)


def run(arguments, **settings):
    """Runs the program with this Python for the ranks, and prints what it prints, errors too. `settings` are variables of
    its environment."""
    environment = dict(os.environ, LOCKSTEP_PYTHON=sys.executable, **settings)
    said = []
    with subprocess.Popen([program(), *arguments], env=environment, text=True, bufsize=1,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            copy_lines(process.stdout, said)
        except BaseException:  # Ctrl-C here need not have reached the program
            process.terminate()
            copy_lines(process.stdout, said)
            raise
    report, code = "".join(said), process.returncode
    if code in FAILURES:
        raise Failure(code, report)
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    if code != 0:
        raise Refused(code, report.strip() or "lockstep ended with exit code %d" % code)


def flags(options):
    """{"shrink_time": 5, "fresh": True} as --shrink-time 5 --fresh."""
    out = []
    for name, value in options.items():
        out.append("--" + name.replace("_", "-"))
        if value is not True:
            out.append(str(value))
    return out


def fuzz(wrap, seconds=60, least=LEAST, **options):
    """Runs generated cases: cases=200, seed=1 are the same ones in every run; without `cases`, as many as `seconds` allow.
    Raises Failure if one fails, and Refused if fewer than `least` have passed, as a run of a few cases says little. The
    other options are those of `lockstep fuzz`: jobs=2, out="folder"."""
    if is_rank:
        return
    time = [] if "cases" in options else ["--time", str(seconds)]
    arguments = ["fuzz", "--subject", subject_of(wrap), "--least", str(least), *time, *flags(options)]
    with tempfile.TemporaryDirectory(prefix="lockstep-") as folder:
        excluded = os.path.join(folder, "excluded")
        try:
            run(arguments, LOCKSTEP_EXCLUDED=excluded)
        finally:
            for why, cases in count_excluded(excluded).items():
                print("excluded by the profile: %d cases end before a step with: %s" % (cases, why), flush=True)


def replay(wrap, case, **options):
    """Runs a case file. Raises Failure if it fails."""
    if not is_rank:
        run(["replay", str(case), "--subject", subject_of(wrap), *flags(options)])


def main():
    """The command `lockstep` of the Python package."""
    os.environ.setdefault("LOCKSTEP_PYTHON", sys.executable)
    path = program()
    os.execv(path, [sys.argv[0], *sys.argv[1:]])
