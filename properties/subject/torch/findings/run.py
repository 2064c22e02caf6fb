#!/usr/bin/env python3
"""run.py --python LABEL=PROGRAM... [NAME...]: runs the findings in PyTorch's reducer, and in wrappers in Python, on
each Python, and prints a table for each of the two.

Every finding is a script that ends with 1 where PyTorch does what FINDINGS.md says, with 0 where it does what a user
expects, with 3 where this Python lacks what the finding is about, and with 2 where it cannot tell. A table has a row
for each finding, and a column for each Python, as Markdown:

    shown        exit code 1
    -            exit code 0
    not there    exit code 3
    cannot tell  exit code 2, or any other
    hangs        the script did not end within the limit
    crashes      a signal ended the script itself

    --python LABEL=PROGRAM  a Python that has PyTorch; LABEL is the column's title, and may be given many times
    --check FILE            compares with the table of this form in FILE, in the columns that have been run; may be
                            given several times. What is not there is not compared
    --folder FOLDER         where scripts are; may be given several times (default: here, and python/findings)
    --limit SECONDS         how long one script may take (default: 300)
    --jobs N                how many Pythons run at once (default: 1)
    --list                  prints the names, and ends
    --one-file NAME         prints the finding as one script that needs nothing but PyTorch, for a bug report

Exit code: 0 when every cell is shown, - or not there; 2 when one is not; 1 for bad usage, and when --check finds a
difference.
"""

import argparse
import concurrent.futures
import os
import select
import signal
import subprocess
import sys
import tempfile

NO_FINDING = {"ranks", "run", "run_test"}
HERE = os.path.dirname(os.path.abspath(__file__))
FOLDERS = [HERE, os.path.normpath(os.path.join(HERE, "..", "..", "python", "findings"))]
CELLS = {0: "-", 1: "shown", 3: "not there"}
TOLD = set(CELLS.values())


class Refusal(Exception):
    """What is wrong with the command, in one line."""


def names_in(folder):
    try:
        files = sorted(os.listdir(folder))
    except OSError as error:
        raise Refusal("cannot read %s: %s" % (folder, error.strerror)) from error
    names = [file[:-3] for file in files if file.endswith(".py") and file[:-3] not in NO_FINDING]
    if not names:
        raise Refusal("there is no finding in %s" % folder)
    return names


def folders_by_name(folders):
    """The folder of each finding, in the order of the folders."""
    found = {}
    for folder in folders:
        for name in names_in(folder):
            if name in found:
                raise Refusal("%s and %s both have a finding %s" % (found[name], folder, name))
            found[name] = folder
    return found


# Imports PyTorch once, which takes seconds, and then runs each script in a fork.
SERVER = """
import os, runpy, sys, traceback
try:
    import torch
    import torch._dynamo
except ImportError:
    pass
for line in sys.stdin:
    script, output = line.rstrip("\\n").split("\\t")
    process = os.fork()
    if process == 0:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.dup2(1, 2)
        sys.path.insert(0, os.path.dirname(script))
        code = 2
        try:
            runpy.run_path(script, run_name="__main__")
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 2
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(process, flush=True)
    print(os.waitpid(process, 0)[1], flush=True)
"""


class Python:
    """A Python that runs one script after the other."""

    def __init__(self, program, output):
        self.output = output
        self.server = subprocess.Popen(
            [program, "-W", "ignore", "-c", SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )

    def close(self):
        self.server.stdin.close()
        self.server.wait()

    def run(self, script, limit):
        """What one script comes to, and the last line that it printed."""
        self.server.stdin.write(("%s\t%s\n" % (script, self.output)).encode())
        process = self.server.stdout.readline()
        if not process:
            return "cannot tell", "the Python did not start"
        hangs = not select.select([self.server.stdout], [], [], limit)[0]
        try:  # the script itself, or whatever ranks it has left
            os.killpg(int(process), signal.SIGKILL)
        except ProcessLookupError:
            pass
        status = int(self.server.stdout.readline())
        with open(self.output, errors="replace", encoding="utf-8") as text:
            said = text.read().strip().split("\n")[-1]
        if hangs:
            return "hangs", said
        if os.WIFSIGNALED(status):
            return "crashes", signal.Signals(os.WTERMSIG(status)).name
        return CELLS.get(os.WEXITSTATUS(status), "cannot tell"), said


def run_column(label, program, scripts, limit):
    """The cells of one Python, by finding and label."""
    cells = {}
    with tempfile.TemporaryDirectory() as folder:
        python = Python(program, os.path.join(folder, "output"))
        for name, folder in scripts.items():
            script = os.path.join(os.path.abspath(folder), name + ".py")
            cells[name, label], said = python.run(script, limit)
            print("%s, %s: %s (%s)" % (label, name, cells[name, label], said), file=sys.stderr, flush=True)
        python.close()
    return cells


def run_all(pythons, scripts, arguments):
    cells = {}
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for column in pool.map(lambda one: run_column(*one, scripts, arguments.limit), pythons.items()):
            cells.update(column)
    return cells


def print_tables(scripts, labels, cells):
    """One for each folder."""
    for number, folder in enumerate(dict.fromkeys(scripts.values())):
        if number > 0:
            print()
        print_table([name for name in scripts if scripts[name] == folder], labels, cells)


def print_table(names, labels, cells):
    print("| finding | %s |" % " | ".join(labels))
    print("|---" * (len(labels) + 1) + "|")
    for name in names:
        print("| %s | %s |" % (name, " | ".join(cells[name, label] for label in labels)))


def read_table(file):
    """The cells of the table in `file` whose first column is titled "finding"."""
    cells, labels = {}, None
    try:
        with open(file, encoding="utf-8") as text:
            lines = text.read().split("\n")
    except OSError as error:
        raise Refusal("cannot read %s: %s" % (file, error.strerror)) from error
    for line in lines:
        row = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if row[0] == "finding":
            labels = row[1:]
        elif labels and line.startswith("|") and not line.startswith("|-"):
            cells.update({(row[0], label): cell for label, cell in zip(labels, row[1:])})
        elif labels and not line.startswith("|"):
            break
    if not cells:
        raise Refusal("%s has no table of findings" % file)
    return cells


def differences(cells, recorded):
    """One line for each cell that the recorded table has otherwise, or lacks."""
    return [
        "%s, %s: %s, but the table has %s" % (label, name, cell, recorded.get((name, label), "no such cell"))
        for (name, label), cell in sorted(cells.items())
        if cell != "not there" and recorded.get((name, label)) != cell
    ]


def one_file(folder, name):
    texts = []
    for part in ("ranks", name):
        with open(os.path.join(folder, part + ".py"), encoding="utf-8") as text:
            texts.append("".join(line for line in text if not line.startswith("from ranks import")))
    return '"""%s' % texts[1].split('"""')[1] + '"""\n' + texts[0].split('"""', 2)[2] + texts[1].split('"""', 2)[2]


def parse(words):
    parser = argparse.ArgumentParser(add_help=False)
    parser.error = lambda text: (_ for _ in ()).throw(Refusal(text))
    parser.add_argument("--help", "-h", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--one-file", metavar="NAME")
    parser.add_argument("--python", action="append", default=[])
    parser.add_argument("--check", action="append", default=[])
    parser.add_argument("--folder", action="append", default=[])
    parser.add_argument("--limit", type=float, default=300)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("names", nargs="*")
    return parser.parse_args(words)


def pythons_of(given):
    pythons = dict(one.split("=", 1) for one in given if "=" in one and not one.startswith("="))
    if not given or len(pythons) != len(given):
        raise Refusal("give each Python once, as --python LABEL=PROGRAM; see --help")
    for label, python in pythons.items():
        if not os.access(python, os.X_OK):
            raise Refusal("the Python of %s is not there: %s" % (label, python))
    return pythons


def main(words):
    arguments = parse(words)
    if arguments.help:
        print(__doc__.strip())
        return 0
    known = folders_by_name(arguments.folder or FOLDERS)
    for name in arguments.names + ([arguments.one_file] if arguments.one_file else []):
        if name not in known:
            raise Refusal("there is no finding '%s'; --list has the names" % name)
    if arguments.one_file:
        print(one_file(known[arguments.one_file], arguments.one_file), end="")
        return 0
    scripts = {name: folder for name, folder in known.items() if not arguments.names or name in arguments.names}
    if arguments.list:
        print("\n".join(scripts))
        return 0
    if arguments.jobs < 1 or arguments.limit <= 0:
        raise Refusal("--jobs and --limit are positive numbers")
    pythons = pythons_of(arguments.python)
    recorded = {}
    for file in arguments.check:
        recorded.update(read_table(file))
    cells = run_all(pythons, scripts, arguments)
    print_tables(scripts, list(pythons), cells)
    return judge(cells, recorded, arguments.check)


def judge(cells, recorded, files):
    """Says what was not told, and what differs from what is recorded; returns the exit code."""
    untold = sorted(key for key, cell in cells.items() if cell not in TOLD)
    for name, label in untold:
        print("not told: %s, %s: %s" % (label, name, cells[name, label]))
    found = differences(cells, recorded) if files else []
    if files:
        print("\n".join(found) if found else "as recorded in %s" % " and ".join(files))
    return 1 if found else 2 if untold else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Refusal as refusal:
        print("findings: %s" % refusal, file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        os._exit(130)
