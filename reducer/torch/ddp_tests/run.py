#!/usr/bin/env python3
"""ci/torch ddp-tests --version VERSION [OPTION...] [TEST...]

Runs PyTorch's own tests of DistributedDataParallel on Lockstep's class: those of distributed_test.py, out of the PyTorch
that is installed. Those that want GPUs get a place on the CPU instead. Prints a table: test, result for each number of ranks,
reason. The list reasons.txt says of each test that does not pass why that is so, and with which error.

    --subject ddp     PyTorch's own class, which shows what applies; without it Lockstep's stands in its place
    --subject local   PyTorch's own class, which never averages then: a control, which has to fail
    --ranks 2,3,4     how many ranks (default: 2)
    --force A,B       forces options on every constructor: views, rank-order, tiny-buckets (one byte), dynamic
    --source FOLDER   a checkout of PyTorch: DistributedDataParallelTest of its test/distributed/test_c10d_gloo.py, and
                      what that has of test_c10d_common.py, run, too, as c10d_gloo:NAME. Tests of another release than the
                      installed one mostly do: `apt-get source --tar-only pytorch` has those of Debian's
    --limit SECONDS   how long one test may take (default: 300)
    --json FILE       also writes a record for each test and number of ranks there
    --list            prints the names of the tests, and ends
    --help            this text

A result is one of

    pass              the test passes
    outside           PyTorch's own class does not pass it here either, so it does not apply
    contract          the contract wants it otherwise; the reason begins with the clause
    refused           it wants an option that Lockstep refuses, with an error that says what to do instead
    missing           it wants what Lockstep lacks as yet
    FAIL HANG CRASH   none of these: it is not on the list, or it fails with another error than the list has
    LISTED            it passes, although the list says that it does not

A silent difference is a test that fails while no error of Lockstep is raised, and that the list does not explain. The last line
says how many pass of those that apply, how many differ by contract, and how many differ silently.

Exit code: 0 when every test passes or fails as the list has it; 1 otherwise, and for bad usage; 130 after Ctrl-C.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, os.pardir, "testing"))

import programs  # noqa: E402
from programs import Refusal, refuse  # noqa: E402

KINDS = ("outside", "contract", "refused", "missing")
FORCED = ("views", "rank-order", "tiny-buckets", "dynamic")


class Reason:
    """A row of the list: these tests, with these ranks and forced options, end with this error for this reason."""

    def __init__(self, kind, ranks, forced, test, error, text):
        self.kind, self.test, self.error, self.text = kind, test, error, text
        self.ranks = None if ranks == "*" else {int(one) for one in ranks.split(",")}
        self.forced = None if forced == "*" else set(forced.split(","))

    def applies(self, subject, ranks, forced, test):
        if subject != "lockstep" and self.kind != "outside":
            return False
        if self.ranks is not None and ranks not in self.ranks:
            return False
        return self.test == test and (self.forced is None or bool(self.forced & set(forced)))


def read_reasons(file):
    """The rows of a list: `kind ranks forced test | error | reason`, where ranks and forced may be `*`."""
    reasons = []
    try:
        with open(file, encoding="utf-8") as text:
            lines = text.read().split("\n")
    except OSError as error:
        raise Refusal("cannot read %s: %s" % (file, error.strerror)) from error
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = [part.strip() for part in line.split(" | ")]
        head = parts[0].split()
        if len(parts) != 3 or len(head) != 4 or head[0] not in KINDS or not parts[2]:
            raise Refusal("%s:%d is no row like 'kind ranks forced test | error | reason'" % (file, number))
        try:
            reasons.append(Reason(*head, parts[1], parts[2]))
        except ValueError as error:
            raise Refusal("%s:%d has no numbers of ranks, but '%s'" % (file, number, head[1])) from error
    return reasons


def judge(record, subject, ranks, forced, reasons):
    """Adds to the record of a test its result, its reason, and whether it is a silent difference."""
    rows = [one for one in reasons if one.applies(subject, ranks, forced, record["name"])]
    told = record.get("error", "") + record.get("said", "")
    row = next((one for one in rows if one.error in told), None) if record["state"] != "crash" else None
    record.update(ranks=ranks, reason=row.text if row else "", silent=False)
    if subject == "lockstep" and record["state"] != "crash" and any(one.kind == "outside" for one in rows):
        record.update(result="outside", reason=rows[0].text)  # what it comes to says nothing
    elif record["state"] == "pass":
        record["result"] = "LISTED" if rows else "pass"
        record["reason"] = rows[0].text if rows else ""
    elif row is not None:
        record["result"] = row.kind
    else:
        record["result"] = "FAIL" if record["state"] in ("fail", "skip") else record["state"].upper()
        record["reason"] = last_line(record.get("error", ""))
        record["silent"] = record["state"] == "fail" and not raised_by_lockstep(record.get("error", ""))
    return record


def last_line(text):
    """The line of a traceback that has the error."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return next((line for line in reversed(lines) if "Error" in line.split(":")[0]), lines[-1] if lines else "")


def raised_by_lockstep(error):
    return "lockstep" in last_line(error).lower()


def is_expected(record):
    return record["result"] in ("pass", *KINDS)


def summary(records):
    """What the last line says of these records."""
    count = {kind: sum(one["result"] == kind for one in records) for kind in ("pass", *KINDS)}
    applying = len(records) - count["outside"]
    silent = sum(one["silent"] for one in records)
    more = "".join(", %d %s" % (count[kind], kind) for kind in ("refused", "missing") if count[kind])
    failing = sum(not is_expected(one) for one in records)
    return "%d pass of %d that apply, %d by contract%s, %d otherwise than listed, %d silent differences" % (
        count["pass"], applying, count["contract"], more, failing, silent)  # fmt: skip


def print_table(records, worlds):
    names = list(dict.fromkeys(one["name"] for one in records))
    by_place = {(one["name"], one["ranks"]): one for one in records}
    rows = []
    for name in names:
        row = [by_place.get((name, ranks)) for ranks in worlds]
        reasons = dict.fromkeys(one["reason"][:160] for one in row if one and one["reason"])
        rows.append([name, *(one["result"] if one else "not run" for one in row), "; ".join(reasons)])
    programs.print_table(["test", *("%d ranks" % ranks for ranks in worlds), "reason"], rows)


def run_suite(arguments, ranks, names, listed=False):
    """Yields the records of the suite with this number of ranks."""
    command = [arguments.python, "-W", "ignore", os.path.join(HERE, "suite.py"), "--subject", arguments.subject]
    command += ["--ranks", str(ranks), "--limit", str(arguments.limit)]
    command += ["--source", os.path.abspath(arguments.source)] if arguments.source else []
    command += (["--force", ",".join(arguments.force)] if arguments.force else []) + (["--list"] if listed else [])
    with tempfile.TemporaryFile("w+") as errors:
        suite = subprocess.Popen(command + names, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True)
        try:
            for line in suite.stdout:
                if line.startswith("{"):
                    yield json.loads(line)
        except BaseException:
            os.killpg(suite.pid, signal.SIGKILL)  # with the ranks of its test
            suite.wait()
            raise
        errors.seek(0)
        said = errors.read()
    if suite.wait() != 0:
        raise Refusal("the tests with %d ranks ended with status %d: %s" % (ranks, suite.returncode, last_line(said)))


def parse(words):
    parser = programs.parser("ci/torch ddp-tests --help")
    parser.add_argument("--subject", default="lockstep")
    parser.add_argument("--ranks", default="2")
    parser.add_argument("--force", default="")
    parser.add_argument("--source", default="")
    parser.add_argument("--limit", type=float, default=300)
    parser.add_argument("--reasons", default=os.path.join(HERE, "reasons.txt"))
    parser.add_argument("--list", action="store_true")
    parser.add_argument("names", nargs="*")
    return parser.parse_args(words)


def settle(arguments):
    """Turns texts into values, and refuses those that are none."""
    if arguments.subject not in ("ddp", "lockstep", "local"):
        refuse("--subject is '%s': give ddp, lockstep or local" % arguments.subject)
    arguments.ranks = programs.numbers_of_ranks(arguments.ranks, 2)
    arguments.force = programs.chosen("--force", arguments.force, FORCED, may_be_none=True)
    if arguments.subject != "lockstep" and "rank-order" in arguments.force:
        refuse("--force rank-order is for Lockstep's class: PyTorch's has no such order")
    if arguments.source and not os.path.exists(os.path.join(arguments.source, "test", "distributed", "test_c10d_gloo.py")):
        refuse("%s is no checkout of PyTorch: it has no test/distributed/test_c10d_gloo.py" % arguments.source)
    programs.expect_positive("--limit", arguments.limit)
    programs.expect_writable(arguments.json)


def main(words):
    arguments = parse(words)
    if arguments.help:
        print(__doc__.strip())
        return 0
    settle(arguments)
    reasons = read_reasons(arguments.reasons)
    if arguments.list:
        for record in run_suite(arguments, arguments.ranks[0], arguments.names, listed=True):
            print(record["name"])
        return 0
    records = []
    for ranks in arguments.ranks:
        before = len(records)
        for record in run_suite(arguments, ranks, arguments.names):
            records.append(judge(record, arguments.subject, ranks, arguments.force, reasons))
            print("%d ranks, %s: %s" % (ranks, record["name"], records[-1]["result"]), file=sys.stderr, flush=True)
        if len(records) == before:
            refuse("no test ran with %d ranks" % ranks)
    print_table(records, arguments.ranks)
    programs.write_json(arguments.json, {"version": arguments.version, "subject": arguments.subject, "force": arguments.force,
                                         "tests": records})
    if len(arguments.ranks) > 1:
        for ranks in arguments.ranks:
            print("%d ranks: %s" % (ranks, summary([one for one in records if one["ranks"] == ranks])))
    print(summary(records))
    return 0 if all(is_expected(one) for one in records) else 1


if __name__ == "__main__":
    programs.run("ci/torch ddp-tests", main)
