#!/usr/bin/env bash
# median-of-workers: XGBoost begins from another prediction, and has no AUC, when the same rows lie on two workers
#
# Guess: training with data on two workers begins as training with all rows on one does: the initial prediction for
# absolute errors is the median of all labels, and the AUC is that of all rows.
# Seen: the median is taken on each worker, and averaged by weight: one row of 0 on one worker and nine rows of 10 on
# the other begin at 9, where the median of the ten rows is 10. (For squared errors it is the mean, and right.) The AUC
# is 0.5 on one worker, and NaN on two of which neither has rows of both classes; early stopping by it has nothing to
# compare.
source "$(dirname -- "$0")/lib.sh"
install "${xgboost_cpu_3_2_0[@]}"
cat >"$scratch/train.py" <<'PY'
import json

import numpy as np
import xgboost


def train(labels, objective, metric):
    data, seen = xgboost.DMatrix(np.ones((len(labels), 1)), np.array(labels)), {}
    options = {"objective": objective, "eval_metric": metric, "nthread": 1, "tree_method": "hist"}
    booster = xgboost.train(options, data, 1, evals=[(data, "train")], evals_result=seen, verbose_eval=False)
    start = json.loads(booster.save_config())["learner"]["learner_model_param"]["base_score"]
    return "begins at %s, %s %.3f" % (float(start.strip("[]")), metric, seen["train"][metric][0])


def show(name, part):
    numbers, classes = [0.0] + [10.0] * 9, [0.0] + [1.0] * 9
    print(name + ", reg:squarederror:", train(part(numbers), "reg:squarederror", "rmse"))
    print(name + ", reg:absoluteerror:", train(part(numbers), "reg:absoluteerror", "mae"))
    print(name + ", binary:logistic:", train(part(classes), "binary:logistic", "auc"))
PY
ranks 2 <<'PY'
import os

from train import show
from xgboost_workers import as_worker

rank = int(os.environ["RANK"])
show("one worker", lambda labels: labels)
with as_worker():
    show("two workers", lambda labels: labels[:1] if rank == 0 else labels[1:])
PY
expect <<'OUT'
all ranks: one worker, reg:squarederror: begins at 9.0, rmse 3.000
all ranks: one worker, reg:absoluteerror: begins at 10.0, mae 1.000
all ranks: one worker, binary:logistic: begins at 0.9, auc 0.500
all ranks: two workers, reg:squarederror: begins at 9.0, rmse 3.000
all ranks: two workers, reg:absoluteerror: begins at 9.0, mae 2.760
all ranks: two workers, binary:logistic: begins at 0.9, auc nan
OUT
