#!/usr/bin/env bash
# samples-of-two-permutations: Accelerate's seedable sampler, and any sampler of one's own, lose samples if ranks have seeds
#
# Guess: a prepared data loader gives each sample to one rank in each epoch, whatever seed the ranks have: Accelerate and
# Fabric make the ranks shuffle alike. use_seedable_sampler=True, which is for reproducible runs, changes the order alone.
# Seen: with shuffle=True it is so by default, with both. With use_seedable_sampler each rank of Accelerate shuffles by its own
# seed, and takes its turn of its own order: after Accelerate's set_seed(..., device_specific=True), which gives ranks other
# dropout, some samples come twice in an epoch and others never. SubsetRandomSampler is synchronized by Accelerate's default and
# not by Fabric, and a sampler of one's own by neither. The number of batches is right, and nothing is raised.
# Better: data_seed beside use_seedable_sampler, and for other samplers a generator of their own with one seed on all ranks.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}" "${accelerate_1_15_0[@]}" lightning-fabric==2.6.6 lightning-utilities==0.15.3
ranks 2 <<'PY'
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Sampler, SubsetRandomSampler

from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import DataLoaderConfiguration, set_seed
from lightning_fabric import Fabric


class Shuffled(Sampler):
    def __len__(self):
        return 10

    def __iter__(self):
        return iter(torch.randperm(10).tolist())


def samples(loader):
    everywhere = [None, None]
    dist.all_gather_object(everywhere, [int(sample) for batch in loader for sample in batch])
    return everywhere


def show(name, prepare):
    samplers = {"shuffle=True": None, "SubsetRandomSampler": SubsetRandomSampler(range(10)), "one's own": Shuffled()}
    for kind, sampler in samplers.items():
        set_seed(3, device_specific=True)
        seen = samples(prepare(DataLoader(range(10), batch_size=1, shuffle=sampler is None, sampler=sampler)))
        missing = sorted(set(range(10)) - {sample for one in seen for sample in one})
        print("%s, %s: %d and %d samples, of ten missing: %s" % (name, kind, len(seen[0]), len(seen[1]), missing))


for options in ({}, {"use_seedable_sampler": True}, {"use_seedable_sampler": True, "data_seed": 5}):
    AcceleratorState._reset_state()
    name = ", ".join(["Accelerate"] + ["%s=%s" % option for option in options.items()])
    show(name, Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**options)).prepare)
fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
fabric.launch()
show("Fabric", fabric.setup_dataloaders)
PY
expect <<'OUT'
all ranks: Accelerate, shuffle=True: 5 and 5 samples, of ten missing: []
all ranks: Accelerate, SubsetRandomSampler: 5 and 5 samples, of ten missing: []
all ranks: Accelerate, one's own: 5 and 5 samples, of ten missing: [5, 8, 9]
all ranks: Accelerate, use_seedable_sampler=True, shuffle=True: 5 and 5 samples, of ten missing: [0, 7, 9]
all ranks: Accelerate, use_seedable_sampler=True, SubsetRandomSampler: 5 and 5 samples, of ten missing: [5, 8, 9]
all ranks: Accelerate, use_seedable_sampler=True, one's own: 5 and 5 samples, of ten missing: [5, 8, 9]
all ranks: Accelerate, use_seedable_sampler=True, data_seed=5, shuffle=True: 5 and 5 samples, of ten missing: []
all ranks: Accelerate, use_seedable_sampler=True, data_seed=5, SubsetRandomSampler: 5 and 5 samples, of ten missing: [5, 8, 9]
all ranks: Accelerate, use_seedable_sampler=True, data_seed=5, one's own: 5 and 5 samples, of ten missing: [5, 8, 9]
all ranks: Fabric, shuffle=True: 5 and 5 samples, of ten missing: []
all ranks: Fabric, SubsetRandomSampler: 5 and 5 samples, of ten missing: [5, 8, 9]
all ranks: Fabric, one's own: 5 and 5 samples, of ten missing: [5, 8, 9]
OUT
