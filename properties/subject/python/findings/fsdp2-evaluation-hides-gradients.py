"""FSDP2 with its default reshard_after_forward. After a pass the sharded parameters have gradients. A forward under
no_grad leaves the module with gathered parameters until the next backward: parameter.grad is None there, so that an
optimizer or a clipping that looks at model.parameters() then sees no gradient. Expected: a forward without gradients
leaves the gradients as they are."""

import torch
from ranks import Model, each, fsdp2, run, verdict

shard = fsdp2()


def body(rank):
    model = shard(Model(p=torch.zeros(4)))
    model("p", 8.0).backward()
    rank.report("before", model.p.grad is not None)
    with torch.no_grad():
        model("p", 1.0)
    rank.report("after", model.p.grad is not None)


seen = run(body)
verdict(
    shown=each(seen, "before", True) and each(seen, "after", False),
    right=each(seen, "before", True) and each(seen, "after", True),
)
