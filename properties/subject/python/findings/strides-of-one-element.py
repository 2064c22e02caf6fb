"""The one parameter of a module has a dimension of one element with another stride than usual, and is contiguous.
DistributedDataParallel cannot be made: `unsupported operation: some elements of the input tensor and the written-to
tensor refer to a single memory location`. Expected: the strides of such dimensions do not matter."""

from ranks import DistributedDataParallel, Model, each, failed, run, torch, verdict


def body(rank):
    weight = torch.ones(1, 2, 2, 2).permute(1, 0, 2, 3)
    rank.report("strides", weight.stride())
    rank.attempt("construction", lambda: DistributedDataParallel(Model(p=weight)))


seen = run(body)
verdict(shown=failed(seen, "construction", "refer to a single memory location"), right=each(seen, "construction", "ok"))
