"""A forward under no_grad takes the place of a broadcast of buffers: the next training forward has none (S3).
Before each forward rank r sets its buffer to r + 1."""

import torch
from ranks import DistributedDataParallel, Model, run, verdict


def body(rank):
    module = Model(p=torch.zeros(1))
    module.register_buffer("seen", torch.zeros(1))
    model = DistributedDataParallel(module)

    def forward(name):
        module.seen.fill_(rank.number + 1.0)
        loss = model("p", 1.0)
        rank.report(name, module.seen.item())
        return loss

    forward("pass 0").backward()
    with torch.no_grad():
        forward("evaluation")
    forward("pass 1").backward()
    forward("pass 2").backward()


_, second = run(body)
buffers = [second[name] for name in ("pass 0", "evaluation", "pass 1", "pass 2")]
verdict(shown=buffers == [1.0, 1.0, 2.0, 1.0], right=buffers == [1.0, 2.0, 1.0, 1.0])
