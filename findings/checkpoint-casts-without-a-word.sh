#!/usr/bin/env bash
# checkpoint-casts-without-a-word: loading a checkpoint into another dtype cuts numbers, and into another size raises
#
# Guess: torch.distributed.checkpoint.load refuses a tensor whose dtype is not that of the checkpoint, as it refuses
# another size; or at least it warns where values do not fit.
# Seen: it casts. 1.75 in an int64 tensor is 1, 2**24 + 1 in float32 is 2**24, 100000 in float16 is infinite, and 300 in uint8
# is 44. A counter that was made a float, or a model that was built in half precision before loading, is changed in silence.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}"
program <<'PY'
import torch
import torch.distributed.checkpoint as checkpoint

saved = {
    "1.75": (torch.tensor([1.75]), torch.int64),
    "2**24 + 1": (torch.tensor([2**24 + 1]), torch.float32),
    "100000": (torch.tensor([100000.0]), torch.float16),
    "300": (torch.tensor([300]), torch.uint8),
}
checkpoint.save({key: tensor for key, (tensor, _) in saved.items()}, checkpoint_id="checkpoint")
for key, (tensor, dtype) in saved.items():
    state = {key: torch.zeros(1, dtype=dtype)}
    checkpoint.load(state, checkpoint_id="checkpoint")
    print("%s of %s as %s: %s" % (key, tensor.dtype, dtype, state[key].item()))
try:
    checkpoint.load({"300": torch.zeros(2, dtype=torch.int64)}, checkpoint_id="checkpoint")
except BaseException as error:
    print("another size:", type(error).__name__)
PY
expect <<'OUT'
1.75 of torch.float32 as torch.int64: 1
2**24 + 1 of torch.int64 as torch.float32: 16777216.0
100000 of torch.float32 as torch.float16: inf
300 of torch.int64 as torch.uint8: 44
another size: CheckpointException
OUT
