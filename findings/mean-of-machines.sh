#!/usr/bin/env bash
# mean-of-machines: LightGBM's first prediction weighs every machine alike, but for one objective
#
# Guess: with 10 rows on one machine and 90 on the other, boosting begins from the mean label of the 100 rows, 1.9.
# Seen: it begins from the mean of the machines' means, 1.5, for regression; for Poisson regression from the mean of
# their logarithms, and for cross_entropy from the mean of their log-odds. The objective binary, with the same labels and
# the same loss as cross_entropy, begins from the log-odds of all rows. With boost_from_average, which is on unless it is
# set, the same data thus trains to another model when a machine has more of it.
source "$(dirname -- "$0")/lib.sh"
install lightgbm==4.7.0 numpy==2.4.6 scipy==1.17.1 narwhals==2.29.0
ranks 2 <<'PY'
import math
import os

import lightgbm
import numpy as np

rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"])


def first_prediction(objective, labels, rank_port):
    options = {"objective": objective, "verbose": -1, "num_threads": 1, "learning_rate": 1e-9}
    if rank_port:
        machines = ",".join("127.0.0.1:%d" % (rank_port + peer) for peer in range(2))
        options.update(num_machines=2, machines=machines, local_listen_port=rank_port + rank)
        options.update(tree_learner="data", pre_partition=True)
    rows = np.random.RandomState(rank).rand(len(labels), 2)
    booster = lightgbm.train(options, lightgbm.Dataset(rows, np.array(labels)), 1)
    return booster.predict(rows[:1], raw_score=True)[0]


numbers = [1.0] * 10, [2.0] * 90
classes = [0.0, 1.0] * 5, [0.0] * 9 + [1.0] * 81
for number, (objective, parts) in enumerate(
    (("regression", numbers), ("poisson", numbers), ("cross_entropy", classes), ("binary", classes))
):
    whole = first_prediction(objective, parts[0] + parts[1], 0)
    spread = first_prediction(objective, parts[rank], port + 1 + 2 * number)
    print("%s: all rows on one machine %.3f, on two %.3f" % (objective, whole, spread))
PY
expect <<'OUT'
all ranks: regression: all rows on one machine 1.900, on two 1.500
all ranks: poisson: all rows on one machine 0.642, on two 0.347
all ranks: cross_entropy: all rows on one machine 1.815, on two 1.099
all ranks: binary: all rows on one machine 1.815, on two 1.815
OUT
