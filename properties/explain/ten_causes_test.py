#!/usr/bin/env python3
"""ten_causes_test.py PROGRAM

Plants causes of wrong or differing bits in averages of four ranks, one at a time, and asks
`lockstep explain-bits` for each. It prints the commands with their output, and ends with 1 unless
every answer names what was planted. The additions are made here, by float32 arithmetic of its own,
so that an order that the program declares is checked against its description in reference/order.h.
"""
import os
import random
import struct
import subprocess
import sys
import tempfile

RANKS = 4
COUNT = 3001  # no multiple of anything
CHUNK = 4096  # bytes of NCCL's ring, so that the buffer takes several loops


def f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def bits(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


def from_bits(number):
    return struct.unpack("<f", struct.pack("<I", number))[0]


def add(numbers):
    """One after the other."""
    total = numbers[0]
    for number in numbers[1:]:
        total = f32(total + number)
    return total


def in_rank_order(x, _index):
    return add(x)


def round_up(number, unit):
    return (number + unit - 1) // unit * unit


def in_nccl_ring(units_bytes):
    """Loops of a chunk for each rank; the last loop is divided evenly, in whole units."""
    whole = CHUNK // 4

    def total(x, index):
        loop = index // (RANKS * whole)
        rest = COUNT - loop * RANKS * whole
        chunk = whole
        if rest < RANKS * whole:
            chunk = round_up(-(-rest // RANKS), units_bytes // 4)
        number = (index - loop * RANKS * whole) // chunk
        return add([x[(number + 1 + hop) % RANKS] for hop in range(RANKS)])

    return total


def in_bcube(x, index):
    """Four ranks are two digits of base two: pairs of neighbours first, each with half of it."""
    half = -(-COUNT // 2)
    begin, end = (0, half) if index < half else (half, COUNT)
    low = 0 if begin == 0 else 1
    middle = begin + -(-(end - begin) // 2)
    high = 0 if index < middle else 1
    own, other = low + 2 * high, low + 2 * (1 - high)
    pair = lambda rank: f32(x[rank] + x[rank ^ 1])
    return f32(pair(own) + pair(other))


def average(ranks, total=in_rank_order, divisor=RANKS):
    factor = f32(1 / divisor)
    return [total([f32(rank[i] * factor) for rank in ranks], i) for i in range(COUNT)]


def causes(ranks, before):
    right = average(ranks)
    zeros = [0.0] * COUNT
    flipped = list(right)
    flipped[77] = from_bits(bits(flipped[77]) ^ 1 << 13)
    twice = [add([x[0] / 4, x[1] / 4, f32(x[2] / 4 + x[2] / 4), x[3] / 4]) for x in zip(*ranks)]
    chunk = ["--nccl-chunk", str(CHUNK)]
    of_mistake = "the average, added in rank order, but "
    return [
        ("NCCL's ring of 2.22 and newer, with chunks of 4 KiB", average(ranks, in_nccl_ring(16)), chunk, 0,
         "the average, added in NCCL's ring (2.22 and newer)"),
        ("NCCL's ring of 2.20 and 2.21, with chunks of 4 KiB", average(ranks, in_nccl_ring(4096)), chunk, 0,
         "the average, added in NCCL's ring (2.20 and 2.21)"),
        ("rank order", right, [], 0, "the average, added in rank order"),
        ("Gloo's bcube", average(ranks, in_bcube), [], 0, "the average, added in Gloo's bcube"),
        ("rank 1 is missing", average([ranks[0], zeros, *ranks[2:]]), [], 65, of_mistake + "rank 1 is missing"),
        ("rank 2 is added twice", twice, [], 65, of_mistake + "rank 2 is counted twice"),
        ("the divisor of a group of five", average(ranks, divisor=5), [], 65,
         of_mistake + "it is divided by 5 and not by 4"),
        ("the average of the pass before", before, ["--before", "before.npy"], 65, "the average of the pass before"),
        ("one flipped bit", flipped, [], 65, of_mistake + "bit 13 is flipped in one value"),
        ("rank 0 contributes what rank 3 has", average([ranks[3], *ranks[1:]]), [], 65,
         of_mistake + "rank 0 has the values of rank 3"),
        ("an offset that is wrong by two", right[2:] + [1.0, 2.0], [], 65, of_mistake + "it lies 2 values too early"),
        ("nothing that is known: noise", before, [], 2, "nothing that is known here gives these bits"),
    ]


def write(name, values):
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (%d,), }" % len(values)
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    with open(name, "wb") as out:
        out.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
        out.write(struct.pack("<%df" % len(values), *values))


def main(program):
    rng = random.Random(20)
    ranks = [[f32(rng.gauss(0, 1)) for _ in range(COUNT)] for _ in range(RANKS)]
    before = [f32(rng.gauss(0, 1)) for _ in range(COUNT)]
    for number, values in enumerate(ranks):
        write("rank%d.npy" % number, values)
    write("before.npy", before)
    arguments = [word for number in range(RANKS) for word in ("--rank", "rank%d.npy" % number)]
    failures = 0
    for cause, values, options, code, text in causes(ranks, before):
        write("result.npy", values)
        ended = subprocess.run([program, "explain-bits", "result.npy", *arguments, *options],
                               capture_output=True, text=True, check=False)
        print("# planted: %s" % cause)
        print("$ lockstep explain-bits result.npy %s" % " ".join(arguments + options))
        print("%s%s# exit code %d" % (ended.stdout, ended.stderr, ended.returncode))
        # Behind the explanation may stand libraries that add so (atlas_match_test.cc).
        if ended.returncode != code or ended.stdout.splitlines(True)[:1] != ["result.npy: %s\n" % text]:
            failures += 1
            print("FAILED: expected exit code %d and '%s'" % (code, text))
        print()
    return 1 if failures else 0


if __name__ == "__main__":
    tested = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        result = main(tested)
        os.chdir("/")
    sys.exit(result)
