"""What scripts with XGBoost share: `with as_worker():` makes the two ranks of ranks.py its workers; rank 0 runs the tracker."""

import contextlib
import json
import os
import time

from xgboost import collective
from xgboost.tracker import RabitTracker


@contextlib.contextmanager
def as_worker():
    rank = os.environ["RANK"]
    if rank == "0":
        tracker = RabitTracker(host_ip="127.0.0.1", n_workers=2)  # it ends with its object
        tracker.start()
        with open("tracker.tmp", "w") as file:
            json.dump(tracker.worker_args(), file)
        os.rename("tracker.tmp", "tracker.json")
    while not os.path.exists("tracker.json"):
        time.sleep(0.05)
    with open("tracker.json") as file:
        arguments = json.load(file)
    with collective.CommunicatorContext(**arguments, dmlc_task_id=rank):
        yield
