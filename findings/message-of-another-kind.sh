#!/usr/bin/env bash
# message-of-another-kind: a receive over Gloo takes a shorter message, and one of another dtype, as it is
#
# Guess: recv() into a tensor raises if what was sent has another dtype or another number of elements.
# Seen: only bytes are compared. A float32 that is received as int32 arrives as its bits (1.0 is 1065353216), and a message
# that is shorter fills the beginning of the tensor and leaves the rest as it was, without an error; recv() returns the
# sender's rank, and the length that came is told nowhere. broadcast is as blind to the dtype.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}"
ranks 2 <<'PY'
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()


def pass_on(name, sent, received, broadcast=False):
    tensor = sent if rank == 0 else received
    if broadcast:
        dist.broadcast(tensor, 0)
    elif rank == 0:
        dist.send(tensor, 1)
    else:
        dist.recv(tensor, 0)
    print("%s: %s" % (name, tensor.tolist()))


pass_on("float32 sent, int32 received", torch.tensor([1.0, 2.0]), torch.zeros(2, dtype=torch.int32))
pass_on("two sent, four received", torch.tensor([1.0, 2.0]), torch.full((4,), 9.0))
pass_on("float32 broadcast into int32", torch.tensor([1.0, 2.0]), torch.zeros(2, dtype=torch.int32), broadcast=True)
pass_on("(2, 3) broadcast into (3, 2)", torch.arange(6.0).view(2, 3), torch.zeros(3, 2), broadcast=True)
PY
expect <<'OUT'
rank 0: float32 sent, int32 received: [1.0, 2.0]
rank 1: float32 sent, int32 received: [1065353216, 1073741824]
rank 0: two sent, four received: [1.0, 2.0]
rank 1: two sent, four received: [1.0, 2.0, 9.0, 9.0]
rank 0: float32 broadcast into int32: [1.0, 2.0]
rank 1: float32 broadcast into int32: [1065353216, 1073741824]
rank 0: (2, 3) broadcast into (3, 2): [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
rank 1: (2, 3) broadcast into (3, 2): [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
OUT
