#!/usr/bin/env python3
"""run.py --program LOCKSTEP --python PROGRAM [NAME...]: what the wrappers of this folder do, beside what one would guess.

Each file NAME.py is the profile of a wrapper. Its function `wrap` declares what the wrapper does right, and its other
functions declare what one would guess (profiles.py): they are rows of the table that is printed, and wrappers its columns.

    clean C           C cases, none of which failed
    found C, S s      the fuzzer found a failure with the cause that the profile names, after C cases and S seconds
    not found         no failure in the whole time, where the profile says that there is one
    not clean         a failure, where the profile says that there is none, or one with another cause
    no answer         the cases could not be run

    --seconds N       how long `wrap` runs, and how long a failure is looked for (default: 60); what is to be clean beside
                      `wrap` runs for a quarter of it
    --cases N         instead, for a busy machine: a clean cell has N cases, and a failure is looked for in 10 N, whatever
                      time they take
    --json FILE       writes what was seen
    --kept            replays the cases in cases/ instead: the guess must fail, and `wrap` pass or refuse the case
    --keep            saves the failures that are found there
    --label TEXT      what stands above the table, as the version of PyTorch
    --list            prints the names, and ends
    --check           looks at the command alone, and ends

Exit code: 0 all is as the profiles say; 1 something is not, or the command is wrong; 2 no answer; 130 after Ctrl-C.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.dirname(HERE))
from lockstep.programs import count_excluded  # noqa: E402  the package is beside this folder

PARTS = {"launched", "profiles", "run", "sharded", "unsayable", "zero"}  # no profiles
INSTALL = {"lightning_fabric": "lightning-fabric", "megatron": "megatron-core"}  # packages that have other names than modules
REQUIREMENTS = os.path.join(HERE, "requirements.txt")
FAILURES = range(65, 76)
LEAST = 5  # cases; a clean cell of fewer says little
REFUSED = "the case needs"

# Runs in the Python of the wrappers: what each profile declares, one line of JSON each.
DESCRIBE = """
import importlib.util, json, os, sys
try:
    import torch.distributed
except ImportError as error:
    print(json.dumps({"has_no": getattr(error, "name", None) or "torch"}))
    raise SystemExit
def describe(path):
    sys.path.insert(0, os.path.dirname(path))
    found = importlib.util.spec_from_file_location("profile", path)
    module = importlib.util.module_from_spec(found)
    try:
        found.loader.exec_module(module)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and not error.name.startswith("torch."):
            return {"lacks": error.name}
        return {"old": "%s: %s" % (type(error).__name__, str(error).split("\\n")[0][:100])}
    functions = [value for value in vars(module).values() if getattr(value, "__module__", "") == "profile" and hasattr(value, "can")]
    guesses = {each.__name__: each.seen for each in functions if hasattr(each, "seen")}
    excludes = [each.__name__.replace("_", " ") for each in getattr(module.wrap, "excludes", ())]
    return {"guesses": guesses, "can": module.wrap.can.split(), "excludes": excludes}
for path in sys.argv[1:]:
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        os.write(writer, json.dumps(describe(path)).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    os.waitpid(process, 0)
    print(said or json.dumps({"old": "it ended while it was loaded"}), flush=True)
"""

INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Refusal(Exception):
    """What is wrong with the command, in one line."""


def profiles():
    return sorted(file[:-3] for file in os.listdir(HERE) if file.endswith(".py") and file[:-3] not in PARTS)


def pinned(package):
    """With the version with which the profiles were tried, if they name it."""
    with open(REQUIREMENTS, encoding="utf-8") as lines:
        return next((line.strip() for line in lines if line.startswith(package + "==")), package)


def in_words(name):
    return name.replace("_", " ")


class Table:
    """Runs the cells. `seen` collects what --json writes."""

    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.excluded = os.path.join(folder, "excluded")
        self.environment = dict(os.environ, LOCKSTEP_PYTHON=options.python, LOCKSTEP_EXCLUDED=self.excluded, RUST_LOG="error",
                                PYTHONDONTWRITEBYTECODE="1")
        self.seen = {"label": options.label, "seconds": options.seconds, "cases": options.cases, "cells": [], "not_there": {}, "not_sayable": {}}
        self.bad = self.unanswered = 0

    def run(self, arguments):
        """The exit code of the program, and what it printed. Ctrl-C ends it, and waits until its ranks are gone."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)  # until there is a process that can be ended
        heed = lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before)  # noqa: E731
        try:
            with subprocess.Popen([self.options.program, *arguments], env=self.environment, text=True, errors="replace",
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  preexec_fn=heed) as process:
                try:
                    heed()
                    said = process.communicate()[0]
                except BaseException:
                    process.terminate()
                    process.communicate()
                    raise
        finally:
            heed()
        if process.returncode == 130:
            raise KeyboardInterrupt
        return process.returncode, said

    def describe(self, names):
        files = [os.path.join(HERE, name + ".py") for name in names]
        try:
            said = subprocess.run([self.options.python, "-W", "ignore", "-c", DESCRIBE, *files], env=self.environment, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout.splitlines()
        except OSError as error:
            raise Refusal("%s cannot be started: %s" % (self.options.python, error.strerror)) from error
        found = [json.loads(line) for line in said]
        if len(found) != len(names) or "has_no" in found[0]:
            lacks = found[0].get("has_no", "torch") if found else "torch"
            raise Refusal("%s has no %s: %s -m pip install %s" % (self.options.python, lacks, self.options.python, lacks))
        return dict(zip(names, found))

    def why_not(self, found):
        """Why a profile cannot be loaded; None if it can."""
        if "lacks" in found:
            package = found["lacks"].split(".")[0]
            return "not installed: %s -m pip install %s" % (self.options.python, pinned(INSTALL.get(package, package)))
        return "not for this version: " + found["old"] if "old" in found else None

    def count_excluded(self):
        """Why steps were left out, and of how many cases."""
        counts = count_excluded(self.excluded)
        if counts:
            os.remove(self.excluded)
        return counts

    def fuzz(self, name, function, expected):
        """A cell: what the fuzzer found of a function. `expected`: the text of a failure, or None."""
        seconds = self.options.seconds if expected or function == "wrap" else max(1, self.options.seconds // 4)
        limit = ["--time", str(seconds)]
        if self.options.cases:
            limit = ["--cases", str(self.options.cases * (10 if expected else 1))]
        report, out = os.path.join(self.folder, "report.json"), os.path.join(self.folder, "out")
        subject = "python:%s:%s" % (os.path.join(HERE, name + ".py"), function)
        begin = time.monotonic()
        code, said = self.run(["fuzz", "--lane", "gloo", "--subject", subject, *limit, "--seed", "1", "--fresh",
                               "--jobs", str(self.options.jobs), "--shrink-time", "10", "--out", out, "--json", report])
        cell = {"wrapper": name, "function": function, "expected": expected, "code": code,
                "seconds": round(time.monotonic() - begin, 1), "excluded": self.count_excluded()}
        if os.path.exists(report):
            with open(report, encoding="utf-8") as text:
                cell["cases"] = json.load(text)["cases"]
            os.remove(report)
        if code in FAILURES:
            cell["cause"] = cause_of(said)
            after = re.search(r"^found:  seed .*, case \d+, after ([0-9.]+) s and (\d+) executions", said, re.MULTILINE)
            cell.update(found_after_s=float(after[1]), found_after_cases=int(after[2])) if after else None
            cell["report"] = said
        elif code != 0:
            cell["cause"] = said.strip().splitlines()[-1] if said.strip() else "it ended with exit code %d" % code
        cell["text"] = self.judge(cell)
        if self.options.keep and expected and cell["text"].startswith("found"):
            self.keep(out, name, function)
        shutil.rmtree(out, ignore_errors=True)
        return cell

    def judge(self, cell):
        if cell["code"] in FAILURES:
            if cell["expected"] is None or cell["expected"] not in cell["report"]:
                self.bad += 1
                return "not clean: " + cell["cause"]
            return "found %d, %.0f s" % (cell.get("found_after_cases", 0), cell.get("found_after_s", 0))
        if cell["code"] != 0 or cell.get("cases", 0) < LEAST:
            self.unanswered += 1
            return "no answer: " + cell.get("cause", "%d cases are too few" % cell.get("cases", 0))
        if cell["expected"] is not None:
            self.bad += 1
            return "not found in %d" % cell["cases"]
        return "clean %d" % cell["cases"]

    @staticmethod
    def kept(name, function):
        return os.path.join(HERE, "cases", "%s-%s.json" % (name, function))

    def keep(self, out, name, function):
        cases = [file for file in os.listdir(out) if file.endswith(".json") and not file.endswith(".found.json")]
        if cases:
            os.makedirs(os.path.join(HERE, "cases"), exist_ok=True)
            with open(os.path.join(out, cases[0]), encoding="utf-8") as found, open(self.kept(name, function), "w", encoding="utf-8") as kept:
                kept.write(found.read().replace(HERE + os.sep, ""))  # it names the subject

    def replay(self, name, function, expected):
        """A cell: what a kept case comes to with the guess and with the profile."""
        case = self.kept(name, function)
        cell = {"wrapper": name, "function": function, "expected": expected}
        subject = "python:%s:%%s" % os.path.join(HERE, name + ".py")
        cell["code"], said = self.run(["replay", case, "--subject", subject % function])
        cell["code_of_wrap"], said_by_wrap = self.run(["replay", case, "--subject", subject % "wrap"])
        cell["excluded"] = self.count_excluded()
        is_refused = cell["code_of_wrap"] == 1 and REFUSED in said_by_wrap
        if cell["code"] not in FAILURES or expected not in said:
            self.bad += 1
            cell["text"] = "not found: " + (cause_of(said) if cell["code"] in FAILURES else said.strip().splitlines()[-1])
        elif cell["code_of_wrap"] not in (0, *FAILURES) and not is_refused:
            self.unanswered += 1
            cell["text"] = "no answer: " + (said_by_wrap.strip().splitlines() or ["nothing was said"])[-1]
        elif cell["code_of_wrap"] != 0 and not is_refused:
            self.bad += 1
            cell["text"] = "not clean: " + cause_of(said_by_wrap)
        else:
            cell["text"] = "found; %s" % ("not declared" if is_refused else "excluded" if cell["excluded"] else "clean")
        return cell

    def add(self, cell):
        self.seen["cells"].append(cell)
        print("%-24s %-40s %s" % (cell["wrapper"], in_words(cell["function"]), cell["text"]), flush=True)
        if cell["text"].startswith("found") and "cause" in cell:
            print("%-24s %-40s   %s" % ("", "", cell["cause"]), flush=True)
        for why, count in cell["excluded"].items():
            print("%-24s %-40s   excluded from %d cases on: %s" % ("", "", count, why), flush=True)

    def run_all(self, names, is_named):
        found = self.describe(names)
        for name in names:
            why = self.why_not(found[name])
            if why is not None and is_named:
                raise Refusal("the wrapper %s is %s" % (name, why))
            if why is not None:
                self.seen["not_there"][name] = why
                print("%-24s %s" % (name, why), flush=True)
        for name in names:
            if name in self.seen["not_there"]:
                continue
            if not self.options.kept:
                self.add(self.fuzz(name, "wrap", None))
            for function, expected in found[name]["guesses"].items():
                if not self.options.kept:
                    self.add(self.fuzz(name, function, expected))
                elif expected is not None and os.path.exists(self.kept(name, function)):
                    self.add(self.replay(name, function, expected))

    def markdown(self):
        """Behaviour x wrapper."""
        cells = {(cell["function"], cell["wrapper"]): cell["text"].split(":")[0] for cell in self.seen["cells"]}
        names = list(dict.fromkeys(cell["wrapper"] for cell in self.seen["cells"]))
        lines = ["| %s | %s |" % (self.options.label or "behaviour", " | ".join(names)), "|---|%s" % ("---|" * len(names))]
        for row in dict.fromkeys(cell["function"] for cell in self.seen["cells"]):
            title = "what the profile declares" if row == "wrap" else in_words(row)
            lines.append("| %s | %s |" % (title, " | ".join(cells.get((row, name), "") for name in names)))
        return "\n".join(lines)


def cause_of(said):
    """The verdict, and the first line that says what was wrong."""
    verdict = re.search(r"^FAIL: (.*?)(?: \(oracle: .*)?$", said, re.MULTILINE)
    wrong = re.search(r"^(?:rank \d+[,:] .*|.*Misuse: .*|the process of the subject .*|no end within .*)$", said, re.MULTILINE)
    return " - ".join(each for each in (verdict and verdict[1], wrong and wrong[0].strip()) if each) or "a failure"


def read_arguments():
    parser = argparse.ArgumentParser(add_help=False)
    for name in ("program", "python", "json", "label"):
        parser.add_argument("--" + name, default="")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--cases", type=int, default=0)
    for name in ("kept", "keep", "list", "check", "help"):
        parser.add_argument("--" + name, action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    if options.help:
        print(__doc__.strip())
        raise SystemExit(0)
    if options.list:
        print("\n".join(profiles()))
        raise SystemExit(0)
    for name in options.names:
        if name not in profiles():
            raise Refusal("there is no wrapper '%s'; there are: %s" % (name, " ".join(profiles())))
    if options.json:  # a report that has no place is refused before anything runs
        try:
            with open(options.json, "a", encoding="utf-8"):
                pass
        except OSError as error:
            raise Refusal("cannot write %s: %s" % (options.json, error.strerror)) from error
    if options.check:
        raise SystemExit(0)
    if not options.program or not options.python:
        raise Refusal("--program and --python need a value; see run.py --help")
    if options.seconds < 1:
        raise Refusal("--seconds is %d: give a whole number from 1 on" % options.seconds)
    return options


def main():
    options = read_arguments()
    with tempfile.TemporaryDirectory(prefix="lockstep-wrappers-") as folder:
        table = Table(options, folder)
        table.run_all(options.names or profiles(), bool(options.names))
    print("\n" + table.markdown())
    if not options.kept and not options.names:
        from unsayable import UNSAYABLE
        table.seen["not_sayable"] = UNSAYABLE
        print("\nnot sayable:")
        for what, why in UNSAYABLE.items():
            print("  %s: %s" % (what, why))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as text:
            json.dump(table.seen, text, indent=1)
            text.write("\n")
    if table.bad:
        print("wrappers: %d of %d cells are not as the profiles say" % (table.bad, len(table.seen["cells"])), file=sys.stderr)
    elif table.unanswered or not table.seen["cells"]:
        print("wrappers: %d cells have no answer" % table.unanswered, file=sys.stderr)
    return 1 if table.bad else 2 if table.unanswered or not table.seen["cells"] else 0


def interrupt(*_):
    raise KeyboardInterrupt


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C
        signal.signal(number, interrupt)
    try:
        sys.exit(main())
    except Refusal as refusal:
        print("wrappers: %s" % refusal, file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("wrappers: interrupted", file=sys.stderr)
        sys.exit(130)
