"""Behaviours of wrappers that programs for the subject `python` cannot say yet, each with the reason."""

NO_LOOP = "the library owns the loop, and a program is a loop"
NO_VERB = "programs have no such call"
NO_GROUP = "it is the process group that does it, and no wrapper is there"
NO_FRAMEWORK = "a rank is a process with PyTorch"

UNSAYABLE = {
    "DeepSpeed, stage 3: a parameter that no rank uses gets the gradient of its last use once more":
        "stage 3 gathers by module and on GPUs; its profile is not written",
    "DeepSpeed: a parameter that is thawed after initialize() never moves": NO_VERB + " that thaws",
    "DeepSpeed: gradients are clipped to norm 1 without a word": "the step of the library's own optimizer is not looked at",
    "DeepSpeed: a window of 16 in bfloat16": "values are float16, float32 and float64",
    "Accelerate with DeepSpeed: two backwards are two steps": "the step of the library's own optimizer is not looked at",
    "Accelerate with DeepSpeed or FSDP on CPUs": "Accelerate prepares DistributedDataParallel there",
    "transformers' Trainer: windows of 4 whose losses are means": NO_LOOP,
    "FSDP2, a group for each block: ranks use other blocks of one size":
        "programs seldom have two parameters whose pieces have one size (none in 230); findings/two-blocks-share-a-gradient.sh does",
    "FSDP2 with one dtype of parameters and another of gradients": "a parameter and its gradient have one dtype",
    "HSDP of 2.14.1: set_requires_all_reduce(False), and a micro-batch that leaves a parameter out": "it is right in 2.15.0",
    "torch.distributed.nn.functional: the gradients of all_reduce(MAX) and reduce_scatter(AVG)": NO_VERB + ": a reduction in the forward",
    "Gloo: all_reduce of bfloat16, of NaN with MAX, of integers with AVG, and reduce": NO_GROUP,
    "DDP: bucket_cap_mb of 0 or less": "buckets and collectives are not looked at",
    "torch.compile of DDP: other bits from the second step on": "values round only where an order is declared for each gradient",
    "JAX: float16 psum, pmean in shard_map, orders by devices": NO_FRAMEWORK,
    "MLX: average_gradients with one bfloat16 parameter more": NO_FRAMEWORK,
}
