#!/usr/bin/env bash
# failed-checkpoint-is-no-exception: "except Exception" does not catch what a failed load of a checkpoint raises
#
# Guess: torch.distributed.checkpoint.load raises something that a handler for Exception catches, so a program can fall back
# to the checkpoint before.
# Seen: CheckpointException is derived from BaseException, as KeyboardInterrupt is. A loop over checkpoints, newest first, with
# "except Exception: continue" ends at the first damaged or missing one, on every rank, and so do the handlers of launchers and
# loggers that write down why a job has failed.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}"
program <<'PY'
import torch
import torch.distributed.checkpoint as checkpoint

checkpoint.save({"weight": torch.zeros(1)}, checkpoint_id="older")
for name, state, folder in (
    ("another size", {"weight": torch.zeros(2)}, "older"),
    ("a key that is not there", {"bias": torch.zeros(1)}, "older"),
    ("a folder that is not there", {"weight": torch.zeros(1)}, "newer"),
):
    try:
        checkpoint.load(state, checkpoint_id=folder)
    except BaseException as error:
        print("%s: %s, an Exception: %s" % (name, type(error).__name__, isinstance(error, Exception)))
PY
expect <<'OUT'
another size: CheckpointException, an Exception: False
a key that is not there: CheckpointException, an Exception: False
a folder that is not there: CheckpointException, an Exception: False
OUT
