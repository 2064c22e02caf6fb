#!/usr/bin/env bash
# bins-of-one-machine: LightGBM cuts a feature by the rows of a single machine, so that other machines' rows may be one bin
#
# Guess: the bins of a feature are found from the rows of all machines, as XGBoost merges the sketches of its workers; the
# same rows on two machines train about the same model as on one.
# Seen: the features are dealt out among the machines, and each looks at its own rows of those that it got. If the rows
# are sorted by time or by a key, and so by a feature, all that lies beyond the rows of that one machine is a single bin,
# which no tree can split, however many rows the other machine has there. No warning is given. With shuffled rows it is right.
source "$(dirname -- "$0")/lib.sh"
install lightgbm==4.7.0 numpy==2.4.6 scipy==1.17.1 narwhals==2.29.0
ranks 2 <<'PY'
import os

import lightgbm
import numpy as np

rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"])
x = np.arange(800) / 800
labels = np.floor(8 * x)  # a staircase of eight steps


def show(name, rows, **options):
    options.update(objective="regression", verbose=-1, num_threads=1, min_data_in_leaf=5, learning_rate=1.0, num_leaves=8)
    model = lightgbm.train(options, lightgbm.Dataset(x[rows].reshape(-1, 1), labels[rows]), 2)
    steps = model.predict(np.arange(0.0625, 1, 0.125).reshape(-1, 1))
    print("%s: %s" % (name, " ".join("%.1f" % step for step in steps)))


def show_two(name, rows, port):
    machines = ",".join("127.0.0.1:%d" % (port + peer) for peer in range(2))
    together = dict(tree_learner="data", pre_partition=True, num_machines=2, local_listen_port=port + rank)
    show(name, rows, machines=machines, **together)


show("one machine", np.arange(800))
show_two("two machines, every other row", np.arange(rank, 800, 2), port + 1)
show_two("two machines, sorted rows", np.arange(400 * rank, 400 * rank + 400), port + 3)
PY
expect <<'OUT'
all ranks: one machine: 0.0 1.0 2.0 3.0 4.0 5.0 6.0 7.0
all ranks: two machines, every other row: 0.0 1.0 2.0 3.0 4.0 5.0 6.0 7.0
all ranks: two machines, sorted rows: 0.0 1.0 2.0 3.0 5.5 5.5 5.5 5.5
OUT
