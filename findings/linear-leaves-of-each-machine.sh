#!/usr/bin/env bash
# linear-leaves-of-each-machine: LightGBM's linear trees are other trees on each machine
#
# Guess: machines that train one model have one model in the end, with linear_tree=True too, or the option is refused.
# Seen: the splits are found together, and the line in a leaf is then fitted by each machine to its own rows. The next tree
# is built on residuals of models that differ. Each machine ends with another model, without a warning, and which one is
# saved decides what is predicted: at 3, where one machine with all rows says 3.0, the one says 3.8 and the other 1.9.
# Without linear_tree the two have one model.
source "$(dirname -- "$0")/lib.sh"
install lightgbm==4.7.0 numpy==2.4.6 scipy==1.17.1 narwhals==2.29.0
ranks 2 <<'PY'
import os

import lightgbm
import numpy as np

rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"])
x = np.arange(0.0, 4.0, 0.1)
labels = x + (1 if rank == 0 else -1) * (x - 2)


def show(name, linear, x, labels, **options):
    options.update(objective="regression", verbose=-1, num_threads=1, min_data_in_leaf=5, num_leaves=3)
    data = lightgbm.Dataset(x.reshape(-1, 1), labels, params={"linear_tree": linear})
    model = lightgbm.train(dict(options, linear_tree=linear), data, 30)
    prediction = model.predict([[1.0], [3.0]])
    print("%s, linear_tree=%s: predicts %.1f at 1, %.1f at 3" % (name, linear, *prediction))


both = np.concatenate([x, x])
for linear in (False, True):
    show("one machine", linear, both, both + np.repeat([1, -1], len(x)) * (both - 2))
for linear in (False, True):
    ports = [port + 1 + 2 * linear, port + 2 + 2 * linear]
    together = dict(tree_learner="data", pre_partition=True, num_machines=2, local_listen_port=ports[rank])
    show("two machines", linear, x, labels, machines=",".join("127.0.0.1:%d" % p for p in ports), **together)
PY
expect <<'OUT'
all ranks: one machine, linear_tree=False: predicts 1.0 at 1, 2.9 at 3
all ranks: one machine, linear_tree=True: predicts 1.0 at 1, 3.0 at 3
all ranks: two machines, linear_tree=False: predicts 1.1 at 1, 2.9 at 3
rank 0: two machines, linear_tree=True: predicts 0.1 at 1, 3.8 at 3
rank 1: two machines, linear_tree=True: predicts 1.9 at 1, 1.9 at 3
OUT
