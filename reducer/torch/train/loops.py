"""The loops that ci/torch train runs: plain PyTorch, Lightning Fabric, Lightning's Trainer, Accelerate, transformers' Trainer.

Each is written as its users write it: none knows which class stands in the place of DistributedDataParallel. `watch` is
a Watch: a loop calls it when the gradients of a step are ready.
"""

import hashlib
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

def digest(tensors):
    """A name for the bits of these tensors."""
    total = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        if tensor is None:
            total.update(b"none")
            continue
        tensor = tensor.detach()
        if tensor.is_sparse:
            tensor = tensor.coalesce()
            total.update(tensor.indices().contiguous().numpy())
            tensor = tensor.values()
        total.update(tensor.contiguous().view(-1).view(torch.uint8).numpy())
    return total.hexdigest()


class Watch:
    """What a loop shows of itself: the bits of the gradients in each step, of the buffers in the last one, and of the
    parameters at the end. A validation after the last step is none of it: PyTorch's class sends buffers in forwards without
    gradients, and Lockstep's does not (S3)."""

    def __init__(self):
        self.gradients, self.buffers = [], ""
        self.classes = set()

    def step(self, model):
        self.buffers = digest(model.buffers())
        self.gradients.append(digest(parameter.grad for parameter in model.parameters()))

    def wrapped(self, module):
        """What wraps the model, so that nobody compares a class with itself."""
        self.classes.add("%s.%s" % (type(module).__module__, type(module).__qualname__))

    def told(self, model):
        return {
            "gradients": self.gradients,
            "parameters": digest(model.parameters()),
            "buffers": self.buffers,
            "classes": sorted(self.classes),
        }


def plain(task, steps, watch, options):
    """A loop without a library. Every fifth step has two micro-batches, the first under no_sync."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = task.build()
    wrapped = DistributedDataParallel(model, **options)
    watch.wrapped(wrapped)
    optimizer = task.optimizer(model)
    for step in range(steps):
        optimizer.zero_grad()
        if step % 5 == 4:
            with wrapped.no_sync():
                torch.manual_seed(step * 1000 + rank)
                task.loss(wrapped, task.batch(-step, rank)).backward()
        torch.manual_seed(step * 1000 + 500 + rank)
        task.loss(wrapped, task.batch(step, rank)).backward()
        watch.step(model)
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()
    return model


def one_process(task, steps, watch, world):
    """What `plain` does at `world` ranks, by one process that adds the scaled gradients of the ranks in their order."""
    model = task.build()
    optimizer = task.optimizer(model)
    factor = torch.tensor(1 / world, dtype=torch.float32).item()
    parameters, buffers = list(model.parameters()), list(model.buffers())
    for step in range(steps):
        before, after_rank_0 = [buffer.clone() for buffer in buffers], None
        sums = [None] * len(parameters)
        for rank in range(world):
            copy_into(buffers, before)
            optimizer.zero_grad()
            if step % 5 == 4:
                torch.manual_seed(step * 1000 + rank)
                task.loss(model, task.batch(-step, rank)).backward()
            torch.manual_seed(step * 1000 + 500 + rank)
            task.loss(model, task.batch(step, rank)).backward()
            after_rank_0 = after_rank_0 or [buffer.clone() for buffer in buffers]
            for index, parameter in enumerate(parameters):
                sums[index] = added(sums[index], parameter.grad, factor)
        copy_into(buffers, after_rank_0)
        for parameter, total in zip(parameters, sums):
            parameter.grad = total
        watch.step(model)
        optimizer.step()
    return model


def added(total, gradient, factor):
    """The sum so far, plus this gradient times the factor, each operation rounded to float."""
    if gradient is None:
        gradient = 0.0 if total is None else torch.zeros_like(total)
    scaled = gradient.coalesce() * factor if gradient.is_sparse else gradient * factor
    if total is None:
        return scaled
    return (total + scaled).coalesce() if total.is_sparse else total + scaled


def copy_into(tensors, values):
    with torch.no_grad():
        for tensor, value in zip(tensors, values):
            tensor.copy_(value)


def fabric(task, steps, watch, options):
    import lightning
    from lightning.fabric.strategies import DDPStrategy

    world = int(os.environ["WORLD_SIZE"])
    run = lightning.Fabric(accelerator="cpu", devices=world, strategy=DDPStrategy(**options))
    run.launch()
    model = task.build()
    wrapped, optimizer = run.setup(model, task.optimizer(model))
    watch.wrapped(wrapped._forward_module)
    for step in range(steps):
        torch.manual_seed(step * 1000 + run.global_rank)
        with run.no_backward_sync(wrapped, enabled=step % 2 == 0):
            run.backward(task.loss(wrapped, task.batch(step, run.global_rank)))
        if step % 2 == 1:
            watch.step(model)
            optimizer.step()
            optimizer.zero_grad()
    dist.barrier()
    return model


class Batches(torch.utils.data.Dataset):
    """The batches of a task, one an item, for the loaders of libraries: item i is that of step i // world, rank i % world."""

    def __init__(self, task, steps, world):
        self.task, self.steps, self.world = task, steps, world

    def __len__(self):
        return self.steps * self.world

    def __getitem__(self, index):
        return self.task.batch(index // self.world, index % self.world)


def trainer(task, steps, watch, options):
    import logging

    import lightning
    from lightning.pytorch.strategies import DDPStrategy

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = task.build()

        def training_step(self, batch, index):
            torch.manual_seed(index * 1000 + self.global_rank)
            return task.loss(self.model, batch)

        def validation_step(self, batch, index):
            self.log("validation", task.loss(self.model, batch), sync_dist=True)

        def on_before_optimizer_step(self, optimizer):
            watch.step(self.model)

        def on_train_start(self):
            watch.wrapped(self.trainer.strategy.model)

        def configure_optimizers(self):
            return task.optimizer(self.model)

    world = int(os.environ["WORLD_SIZE"])
    loader = torch.utils.data.DataLoader(Batches(task, steps, world), batch_size=None, shuffle=False)
    module = Module()
    run = lightning.Trainer(
        accelerator="cpu",
        devices=world,
        strategy=DDPStrategy(**options),
        max_epochs=1,
        accumulate_grad_batches=2,
        limit_val_batches=2,
        num_sanity_val_steps=1,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        logger=False,
    )
    run.fit(module, loader, loader)
    return module.model


def accelerate(task, steps, watch, options):
    from accelerate import Accelerator, DistributedDataParallelKwargs

    run = Accelerator(cpu=True, gradient_accumulation_steps=2, kwargs_handlers=[DistributedDataParallelKwargs(**options)])
    model = task.build()
    wrapped, optimizer = run.prepare(model, task.optimizer(model))
    watch.wrapped(wrapped)
    for step in range(steps):
        torch.manual_seed(step * 1000 + run.process_index)
        with run.accumulate(wrapped):
            run.backward(task.loss(wrapped, task.batch(step, run.process_index)))
            if run.sync_gradients:
                if not any(parameter.grad is not None and parameter.grad.is_sparse for parameter in model.parameters()):
                    run.clip_grad_norm_(wrapped.parameters(), 1.0)
                watch.step(model)
            optimizer.step()
            optimizer.zero_grad()
    run.wait_for_everyone()
    return model


def transformers_trainer(task, steps, watch, options):
    import tempfile

    from transformers import Trainer, TrainingArguments, logging

    logging.set_verbosity_error()
    model = task.build()
    world = int(os.environ["WORLD_SIZE"])
    examples = [
        {name: value[index] for name, value in task.batch(step, rank).items()}
        for step in range(steps)
        for rank in range(world)
        for index in range(4)
    ]

    class Watched(Trainer):
        def training_step(self, *arguments, **others):
            loss = super().training_step(*arguments, **others)
            watch.wrapped(self.model_wrapped)
            if self.accelerator.sync_gradients:
                watch.step(self.model)
            return loss

    with tempfile.TemporaryDirectory() as folder:
        run = Watched(
            model=model,
            train_dataset=examples,
            args=TrainingArguments(
                output_dir=folder,
                use_cpu=True,
                ddp_backend="gloo",
                max_steps=steps // 2,
                per_device_train_batch_size=4,
                gradient_accumulation_steps=2,
                ddp_find_unused_parameters=options.get("find_unused_parameters", False),
                report_to=[],
                save_strategy="no",
                logging_strategy="no",
                disable_tqdm=True,
                seed=3,
            ),
        )
        run.train()
        dist.barrier()
    return model


LOOPS = {
    "plain": plain,
    "fabric": fabric,
    "trainer": trainer,
    "accelerate": accelerate,
    "transformers": transformers_trainer,
}
