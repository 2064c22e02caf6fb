#!/usr/bin/env bash
# subsample-takes-the-same-rows-everywhere: XGBoost's workers leave out rows of the same numbers
#
# Guess: subsample=0.5 draws rows on each worker by itself, so that of twenty rows any ten or so take part.
# Seen: each worker draws from the same random numbers, and row 2 of one worker is left out whenever row 2 of the other
# is. Of rows that were dealt out in turns, neighbours come and go together; and the number of rows that take part varies
# as if there were half of them. With hist and approx, and with each seed.
source "$(dirname -- "$0")/lib.sh"
install "${xgboost_cpu_3_2_0[@]}"
ranks 2 <<'PY'
import os

import numpy as np
import xgboost
from xgboost_workers import as_worker

rank = int(os.environ["RANK"])
with as_worker():
    for method, seed in (("hist", 0), ("hist", 5), ("approx", 0)):
        labels = 2.0 ** (np.arange(10) + 10 * rank)  # the sum tells which rows are in it
        options = {"tree_method": method, "seed": seed, "subsample": 0.5, "lambda": 0, "eta": 1, "nthread": 1}
        options.update(max_depth=1, base_score=0.0)
        model = xgboost.train(options, xgboost.DMatrix(np.ones((10, 1)), labels), 1)
        leaf, rows = (float(part.split("=")[1]) for part in model.get_dump(with_stats=True)[0].split(":")[1].split(","))
        taken = [[row for row in range(10) if round(leaf * rows) >> (row + 10 * worker) & 1] for worker in (0, 1)]
        print("%s, seed %d: rows %s of worker 0, %s of worker 1" % (method, seed, *taken))
PY
expect <<'OUT'
all ranks: hist, seed 0: rows [0, 1, 3, 4, 5, 6] of worker 0, [0, 1, 3, 4, 5, 6] of worker 1
all ranks: hist, seed 5: rows [0, 1, 4, 5] of worker 0, [0, 1, 4, 5] of worker 1
all ranks: approx, seed 0: rows [0, 1, 3, 4, 5, 6] of worker 0, [0, 1, 3, 4, 5, 6] of worker 1
OUT
