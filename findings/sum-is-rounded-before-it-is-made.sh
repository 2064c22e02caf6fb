#!/usr/bin/env bash
# sum-is-rounded-before-it-is-made: casting the sum of a sharded tensor to half precision casts each rank's part first
#
# Guess: d.sum(0).half() rounds the float32 sum once, as it does for a tensor that is not sharded; 70000 - 69990 gives 10.
# Seen: the cast comes first, and the parts are added in the half type afterwards: NaN in float16, because both parts are
# infinite, and 0 in bfloat16. Reading the sum before the cast gives 10. A cast to int32 adds first, as the rounded parts of
# 0.6 and 0.6 would give 0; so does a comparison. No error is raised.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}"
ranks 2 <<'PY'
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,))
whole = torch.tensor([[70000.0, 0.6], [-69990.0, 0.6]])
sums = distribute_tensor(whole, mesh, [Shard(0)]).sum(0)
for name, dtype in (("float16", torch.float16), ("bfloat16", torch.bfloat16), ("int32", torch.int32)):
    seen = [one.tolist()[0] for one in (whole.sum(0).to(dtype), sums.to(dtype).full_tensor(), sums.full_tensor().to(dtype))]
    print(name, "not sharded %s, cast and read %s, read and cast %s" % tuple(seen))
print("0.6 + 0.6 in int32:", sums.to(torch.int32).full_tensor().tolist()[1])
PY
expect <<'OUT'
all ranks: float16 not sharded 10.0, cast and read nan, read and cast 10.0
all ranks: bfloat16 not sharded 10.0, cast and read 0.0, read and cast 10.0
all ranks: int32 not sharded 10, cast and read 10, read and cast 10
all ranks: 0.6 + 0.6 in int32: 1
OUT
