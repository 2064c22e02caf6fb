#!/usr/bin/env bash
# custom-metric-weighs-workers-alike: XGBoost averages a custom metric over workers without regard to their rows
#
# Guess: a custom metric is computed on each worker's rows, and stays each worker's own, as in LightGBM; or it is put
# together as the built-in metric of the same name is.
# Seen: each worker gets the plain mean of the workers' values. With one row on a worker and nine on the other, the mean
# absolute error that one writes oneself is another than "mae" of the same model and rows, and a count of rows is 5 of 10.
# Early stopping prefers the custom metric, if there is one.
source "$(dirname -- "$0")/lib.sh"
install "${xgboost_cpu_3_2_0[@]}"
ranks 2 <<'PY'
import os

import numpy as np
import xgboost
from xgboost_workers import as_worker

rank = int(os.environ["RANK"])
labels = np.array([10.0] + [1.0] * 9)


def show(name, part):
    data = xgboost.DMatrix(np.zeros((len(labels[part]), 1)), labels[part])
    for custom in (
        lambda prediction, data: ("own_mae", float(np.abs(prediction - data.get_label()).mean())),
        lambda prediction, data: ("rows", float(len(prediction))),
    ):
        seen = {}
        options = {"nthread": 1, "base_score": 1.0, "eval_metric": "mae", "eta": 0}
        xgboost.train(options, data, 1, evals=[(data, "of")], evals_result=seen, custom_metric=custom, verbose_eval=False)
        print("%s: %s" % (name, ", ".join("%s %.2f" % (metric, values[-1]) for metric, values in seen["of"].items())))


show("one worker", slice(0, 10))
with as_worker():
    show("two workers", slice(0, 1) if rank == 0 else slice(1, 10))
PY
expect <<'OUT'
all ranks: one worker: mae 0.90, own_mae 0.90
all ranks: one worker: mae 0.90, rows 10.00
all ranks: two workers: mae 0.90, own_mae 4.50
all ranks: two workers: mae 0.90, rows 5.00
OUT
