#!/usr/bin/env bash
# short-last-window: Accelerate divides the last, shorter window by the full one, and moves the schedule by ranks
#
# Guess: with gradient_accumulation_steps=4 and five batches, the fifth is a window of its own, whose mean is over one
# batch; a prepared scheduler moves once for each step of the optimizer.
# Seen: the loss of each batch is divided by 4, and the last window is stepped with what it has: a quarter of its
# gradient. The scheduler moves twice for a step on two ranks, as split_batches is off.
source "$(dirname -- "$0")/lib.sh"
install "${torch_2_15_0[@]}" "${accelerate_1_15_0[@]}"
ranks 2 <<'PY'
import torch
from accelerate import Accelerator

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
module = torch.nn.Linear(1, 1, bias=False)
torch.nn.init.zeros_(module.weight)
optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda moves: 1.0 / (1 + moves))
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(10, 1)), batch_size=1)
module, optimizer, loader, scheduler = accelerator.prepare(module, optimizer, loader, scheduler)
for number, (batch,) in enumerate(loader, 1):  # the gradient of each batch is 1, on each rank
    with accelerator.accumulate(module):
        accelerator.backward(module(batch).sum())
        if accelerator.sync_gradients:
            gradient, rate = module.module.weight.grad.item(), optimizer.param_groups[0]["lr"]
            print("batch %d: step with the gradient %g and the rate %.3f" % (number, gradient, rate))
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
print("moves of the scheduler for 2 steps:", round(1 / scheduler.get_last_lr()[0]) - 1)
PY
expect <<'OUT'
all ranks: batch 4: step with the gradient 1 and the rate 1.000
all ranks: batch 5: step with the gradient 0.25 and the rate 0.333
all ranks: moves of the scheduler for 2 steps: 4
OUT
