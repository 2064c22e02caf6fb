#!/usr/bin/env bash
# linear-model-of-each-worker: XGBoost's linear booster trains another model on each worker, and reports one loss for all
#
# Guess: workers that train together end with one model, or the booster is refused, as tree_method="exact" is.
# Seen: booster="gblinear" solves for its own rows on each worker and exchanges nothing. Each worker has other weights,
# and which of them is saved decides what is predicted. The reported loss is summed over the workers, of which each
# evaluates its own model, so that it is equal on all of them, and that of no model. Trees are equal on both workers.
source "$(dirname -- "$0")/lib.sh"
install "${xgboost_cpu_3_2_0[@]}"
ranks 2 <<'PY'
import os

import numpy as np
import xgboost
from xgboost_workers import as_worker

rank = int(os.environ["RANK"])
rows = np.arange(10.0)
labels = np.where(rows < 5, 2 * rows, 20 - rows)


def show(name, part):
    for booster in ("gbtree", "gblinear"):
        data, seen = xgboost.DMatrix(rows[part].reshape(-1, 1), labels[part]), {}
        options = {"booster": booster, "nthread": 1, "eta": 0.5}
        model = xgboost.train(options, data, 20, evals=[(data, "train")], evals_result=seen, verbose_eval=False)
        prediction = model.predict(xgboost.DMatrix([[1.0], [8.0]]))
        print("%s, %s: predicts %.1f and %.1f, rmse %.2f" % (name, booster, *prediction, seen["train"]["rmse"][-1]))


show("one worker", slice(0, 10))
with as_worker():
    show("two workers", slice(5 * rank, 5 * rank + 5))
PY
expect <<'OUT'
all ranks: one worker, gbtree: predicts 2.0 and 12.0, rmse 0.01
all ranks: one worker, gblinear: predicts 4.1 and 13.3, rmse 2.71
all ranks: two workers, gbtree: predicts 2.0 and 12.0, rmse 0.01
rank 0: two workers, gblinear: predicts 2.3 and 14.9, rmse 0.96
rank 1: two workers, gblinear: predicts 13.3 and 12.7, rmse 0.96
OUT
