#!/usr/bin/env bash
# last-batch-drops-a-ranks-sum: Accelerate's gather_for_metrics cuts per-rank numbers as if they were samples
#
# Guess: gather_for_metrics() drops from the last batch the samples that were repeated to fill it, and leaves a number
# per rank (a sum of losses, a count) alone, of which every rank has one.
# Seen: whatever is gathered is cut to the number of samples that the last batch really had. With five samples on two
# ranks and batches of two, one sample is left for the last batch, so that of the two ranks' sums the second is dropped;
# and the first one still has the repeated sample in it. A mean over an epoch is wrong by that, silently.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}" "${accelerate_1_15_0[@]}"
ranks 2 <<'PY'
import torch
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
loader = accelerator.prepare(torch.utils.data.DataLoader(torch.arange(1, 6), batch_size=2))
total = 0
for batch in loader:
    samples, sums = accelerator.gather_for_metrics((batch, batch.sum()))
    print("own batch %s, samples %s, sums %s" % (batch.tolist(), samples.tolist(), sums.tolist()))
    total += sums.sum().item()
print("sum of the ranks' sums: %d, of the samples: 15" % total)
PY
expect <<'OUT'
rank 0: own batch [1, 2], samples [1, 2, 3, 4], sums [3, 7]
rank 1: own batch [3, 4], samples [1, 2, 3, 4], sums [3, 7]
rank 0: own batch [5, 1], samples [5], sums [6]
rank 1: own batch [2, 3], samples [5], sums [6]
all ranks: sum of the ranks' sums: 16, of the samples: 15
OUT
