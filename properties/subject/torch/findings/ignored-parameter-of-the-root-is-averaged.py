"""A parameter of the outermost module, which DDP is told to ignore by its name, is averaged; a name that nothing
has is accepted (S3)."""

from ranks import DistributedDataParallel, Model, each, grad_of, run, verdict
import torch


def body(rank):
    module = Model(a=torch.zeros(1), b=torch.zeros(1))
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, ["a", "nothing"])
    model = DistributedDataParallel(module)
    model("ab", 1.0 + rank.number).backward()
    rank.report("a", grad_of(model, "a"))


seen = run(body)
verdict(
    shown=each(seen, "a", [1.5]), right=each(seen, "a", [1.0], [2.0]) or all("nothing" in one["end"] for one in seen)
)
