#!/usr/bin/env bash
# metric-of-one-machine: LightGBM's metrics of a distributed training are each machine's own
#
# Guess: machines that train one model together report one loss of it, as XGBoost's workers do.
# Seen: the model is one, and the trees are equal; a metric is computed on the machine's own rows, so that each reports
# another loss. Early stopping, and whatever else decides by it, comes to other conclusions on other machines.
source "$(dirname -- "$0")/lib.sh"
install lightgbm==4.7.0 numpy==2.4.6 scipy==1.17.1 narwhals==2.29.0
ranks 2 <<'PY'
import hashlib
import os

import lightgbm
import numpy as np

rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"])
machines = ",".join("127.0.0.1:%d" % (port + 1 + peer) for peer in range(2))
options = {"objective": "regression", "verbose": -1, "num_threads": 1, "tree_learner": "data", "pre_partition": True}
options.update(num_machines=2, machines=machines, local_listen_port=port + 1 + rank, min_data_in_leaf=5)
rows = np.random.RandomState(rank).rand(100, 2)
labels = rows[:, 0] + (0.1 + 2 * rank) * np.random.RandomState(10 + rank).rand(100)
data, seen = lightgbm.Dataset(rows, labels, free_raw_data=False), {}
booster = lightgbm.train(options, data, 5, valid_sets=[data], callbacks=[lightgbm.record_evaluation(seen)])
trees = booster.model_to_string().split("end of trees")[0].split("tree_sizes")[1]
print("trees:", hashlib.sha256(trees.encode()).hexdigest())
print("squared error after 5 rounds: %.3f" % seen["training"]["l2"][-1])
PY
sed -i 's/^all ranks: trees: .*/all ranks: trees: the same/' "$scratch/seen"
expect <<'OUT'
all ranks: trees: the same
rank 0: squared error after 5 rounds: 0.213
rank 1: squared error after 5 rounds: 0.468
OUT
