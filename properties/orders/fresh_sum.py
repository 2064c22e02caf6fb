#!/usr/bin/env python3
"""fresh_sum.py PROGRAM ADAPTER LIBRARY VERSION RANKS ELEMENTS SEED

Lets an installed library sum random floats on that many ranks, and asks `lockstep explain-bits` which order gives the bits. Prints
what it says. Exit code: 0 if it names the library in a version range that has this one, else 1. It runs in the Python in
which the library is installed, as measure.py does."""
import os
import re
import subprocess
import sys
import tempfile

import numpy

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import measure  # noqa: E402


def version_key(version):
    return [int(part) for part in re.findall(r"\d+", version)]


def is_named(text, library, version):
    """Whether some line names the library, alone or in a range that has the version."""
    for first, last in re.findall(re.escape(library) + r" ([0-9][0-9.]*)(?: to ([0-9][0-9.]*))?", text):
        if version_key(first.rstrip(".")) <= version_key(version) <= version_key((last or first).rstrip(".")):
            return True
    return False


def main(program, adapter, library, version, ranks, elements, seed):
    random = numpy.random.default_rng(int(seed))
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "explain-bits", os.path.join(folder, "sum.npy")]
        for rank in range(int(ranks)):
            values = random.standard_normal(int(elements)).astype(numpy.float32)
            values.tofile(os.path.join(folder, "values.float32.%d" % rank))
            numpy.save(os.path.join(folder, "rank%d.npy" % rank), values)
            command += ["--rank", os.path.join(folder, "rank%d.npy" % rank)]
        with open(os.path.join(folder, "plan"), "w") as plan:
            plan.write("0 all_reduce float32 %s 1 1 0\n" % elements)
        measure.run(adapter, int(ranks), folder)
        numpy.save(command[2], numpy.fromfile(os.path.join(folder, "results.0"), numpy.float32))
        said = subprocess.run(command + ["--divisor", "1"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
    print(said.strip())
    return 0 if is_named(said, library, version) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
