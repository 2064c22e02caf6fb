"""What the programs behind `ci/torch ddp-tests`, `ci/torch train` and `ci/bench torch-train` have in common: options and
their refusals, tables, JSON files, and how a program ends."""

import argparse
import json
import os
import signal
import sys


class Refusal(Exception):
    """What is wrong with the command, or with what it reads, in one line."""


def refuse(message):
    raise Refusal(message)


def parser(help_command):
    """One whose errors are refusals that name `help_command`. All three programs have these options."""
    made = argparse.ArgumentParser(add_help=False)
    made.error = lambda message: refuse("%s; see %s" % (message, help_command))
    made.add_argument("--python", default=sys.executable)
    made.add_argument("--version", default="")
    made.add_argument("--json")
    made.add_argument("--help", "-h", action="store_true")
    return made


def numbers_of_ranks(text, least):
    worlds = text.split(",")
    if not all(one.isdigit() and least <= int(one) <= 16 for one in worlds):
        refuse("--ranks is '%s': give numbers from %d to 16, as 2,4" % (text, least))
    return [int(one) for one in worlds]


def chosen(option, text, known, may_be_none=False):
    """The names in a list with commas, each of which is known."""
    names = [one for one in text.split(",") if one]
    for name in names:
        if name not in known:
            refuse("%s has '%s': give some of %s" % (option, name, ",".join(known)))
    if not names and not may_be_none:
        refuse("%s is empty: give some of %s" % (option, ",".join(known)))
    return names


def expect_positive(option, value):
    if value <= 0:
        refuse("%s is %g: give a number above 0" % (option, value))


def expect_writable(file):
    """Before the work: the file is empty then. None is no file."""
    if file:
        try:
            open(file, "w", encoding="utf-8").close()
        except OSError as error:
            refuse("cannot write %s: %s" % (file, error.strerror))


def write_json(file, record):
    if file:
        with open(file, "w", encoding="utf-8") as out:
            json.dump(record, out, indent=1)


def print_table(titles, rows):
    """In Markdown."""
    print("| %s |" % " | ".join(titles))
    print("|%s" % ("---|" * len(titles)))
    for row in rows:
        print("| %s |" % " | ".join(str(cell).replace("|", "/") for cell in row))


def run(name, main):
    """Runs main(words), and ends the program. A SIGTERM ends it as an exception does, and so what it has started."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        sys.exit(main(sys.argv[1:]))
    except Refusal as refusal:
        print("%s: %s" % (name, refusal), file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        os._exit(130)
