#!/usr/bin/env bash
# refreshed-leaves-take-a-maximum: XGBoost refreshes a model's leaves by the largest of the workers' sums
#
# Guess: process_type="update" with updater="refresh" on two workers gives the leaves of all rows, as on one worker.
# Seen: the workers' sums of gradients and of hessians are put together by a maximum where training adds them. A leaf whose
# labels are 10 on one worker and 20, 30, 60 on the other, 30 on the average, becomes 10 / 3, which is no mean of any rows;
# one whose rows all lie on one worker becomes 0. All workers agree on it, and nothing is raised. The number of rows that
# the dump shows is the larger of the workers', too.
source "$(dirname -- "$0")/lib.sh"
install "${xgboost_cpu_3_2_0[@]}"
ranks 2 <<'PY'
import os

import numpy as np
import xgboost
from xgboost_workers import as_worker

rank = int(os.environ["RANK"])
side = np.array([0.0, 0, 1, 1, 1, 1])
labels = np.array([1.0, 3, 10, 20, 30, 60])


def show(name, part):
    rows = side[part].reshape(-1, 1)
    options = {"max_depth": 1, "eta": 1, "lambda": 0, "base_score": 0.0, "min_child_weight": 0, "nthread": 1}
    model = xgboost.train(options, xgboost.DMatrix(rows, 10 * side[part]), 1)
    options.update(process_type="update", updater="refresh", refresh_leaf=True)
    refreshed = xgboost.train(options, xgboost.DMatrix(rows, labels[part]), 1, xgb_model=model)
    for when, booster in (("trained", model), ("refreshed", refreshed)):
        leaves = booster.predict(xgboost.DMatrix([[0.0], [1.0]]))
        covers = [int(line.split("cover=")[1]) for line in booster.get_dump(with_stats=True)[0].split("\n")[1:3]]
        print("%s, %s: leaves %.2f of %d rows, %.2f of %d" % (name, when, leaves[0], covers[0], leaves[1], covers[1]))


show("one worker", slice(0, 6))
with as_worker():
    show("two workers", slice(0, 3) if rank == 0 else slice(3, 6))
PY
expect <<'OUT'
all ranks: one worker, trained: leaves 0.00 of 2 rows, 10.00 of 4
all ranks: one worker, refreshed: leaves 2.00 of 2 rows, 30.00 of 4
all ranks: two workers, trained: leaves 0.00 of 2 rows, 10.00 of 4
all ranks: two workers, refreshed: leaves 0.00 of 2 rows, 3.33 of 3
OUT
