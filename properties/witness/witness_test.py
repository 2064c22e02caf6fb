#!/usr/bin/env python3
"""The witness finds what two projects have met, and is silent on correct programs. Ranks are processes over Gloo.

Exit code 77, and a line that says why, where this Python has no PyTorch.
"""

import os
import sys
import unittest

try:
    import torch
    import torch.distributed as dist
except ImportError as error:
    print("skipped: this Python has no PyTorch (%s)" % error)
    sys.exit(77)
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "subject", "torch", "findings")]
import lockstep_witness
from ranks import run

sys.excepthook = sys.__excepthook__  # ranks is for scripts, which end otherwise
from torch import nn
from torch.nn.parallel import DistributedDataParallel

HAS_HOOKS = hasattr(torch.optim.Optimizer, "register_step_pre_hook")  # since PyTorch 2.0


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


class Trainer:
    """A model with an optimizer and a witness, as a script has them."""

    def __init__(self, model, **options):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        self.witness = lockstep_witness.watch(model, self.optimizer if HAS_HOOKS else None, **options)

    def step(self):
        if not HAS_HOOKS:
            self.witness.check()
        self.optimizer.step()
        self.optimizer.zero_grad()


def batch(rank, seed, size=8):
    """Other data on each rank."""
    return torch.rand(4, size, generator=torch.Generator().manual_seed(100 * seed + rank.number))


def reporting(train):
    """A body of ranks.run: reports "silent", or what the witness raised."""

    def body(rank):
        try:
            train(rank)
            rank.report("witness", "silent")
        except lockstep_witness.GradientsDiffer as error:
            rank.report("witness", str(error))
            rank.report("step", error.step)
            rank.report("parameters", error.parameters)

    return body


class WitnessFinds(unittest.TestCase):
    def seen(self, train, world=2):
        seen = run(reporting(train), world)
        for rank in seen:
            self.assertEqual(rank["end"], "ok")
            self.assertNotEqual(rank["witness"], "silent")
            self.assertEqual(rank["witness"], seen[0]["witness"])
        return seen[0]

    def test_trl_7245_the_loss_on_the_unwrapped_model(self):
        """compute_loss() takes the model out of its wrapper and runs the forward on that."""

        def train(rank):
            trainer = Trainer(DistributedDataParallel(network()))
            for step in range(3):
                model = trainer.model if step == 0 else trainer.model.module
                model(batch(rank, step)).pow(2).mean().backward()
                trainer.step()

        seen = self.seen(train)
        self.assertEqual(seen["step"], 2)
        self.assertEqual(
            seen["parameters"], {name: [[0], [1]] for name in ("0.weight", "0.bias", "2.weight", "2.bias")}
        )
        self.assertIn("first that of 0.weight: rank 0 alone; rank 1 alone", seen["witness"])
        self.assertIn("of its module without the wrapper: [1, 1]", seen["witness"])
        self.assertIn("No backward was reduced", seen["witness"])

    def test_trl_7245_a_part_of_the_unwrapped_model(self):
        def train(rank):
            trainer = Trainer(DistributedDataParallel(network()))
            trainer.model.module[2](trainer.model.module[0](batch(rank, 0))).sum().backward()
            trainer.step()

        seen = self.seen(train)
        self.assertEqual(seen["step"], 1)
        self.assertIn("No backward was reduced", seen["witness"])

    def test_torchrec_4758_one_forward_one_backward(self):
        """Stage 0 of four, eight micro-batches: F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7. All forwards but the
        last one are under no_sync; the backward after it, B4, is reduced."""

        def train(rank):
            trainer = Trainer(DistributedDataParallel(network()))
            losses = []
            for index in range(8):
                trainer.model.require_backward_grad_sync = index == 7
                losses.append(trainer.model(batch(rank, index)).sum())
                if index >= 3:
                    losses[index - 3].backward()
            for index in (5, 6, 7):
                losses[index].backward()
            trainer.step()

        seen = self.seen(train)
        self.assertEqual(seen["step"], 1)
        self.assertIn("Forwards of the wrapper by rank: [1, 1] synced, [7, 7] under no_sync", seen["witness"])
        self.assertIn("A synced forward has the next backward reduced", seen["witness"])

    def test_the_rank_and_the_parameter_that_differ(self):
        def train(rank):
            trainer = Trainer(DistributedDataParallel(network()))
            for step in range(3):
                trainer.model(batch(rank, step)).sum().backward()
                if rank.number == 1 and step == 1:
                    trainer.model.module[2].bias.grad.view(torch.int32)[3] += 1  # the last bit
                trainer.step()

        seen = self.seen(train, 3)
        self.assertEqual(seen["step"], 2)
        self.assertEqual(seen["parameters"], {"2.bias": [[0, 2], [1]]})
        self.assertIn(
            "1 of 4 parameters differ between the ranks, first that of 2.bias: ranks 0, 2 agree; rank 1 alone",
            seen["witness"],
        )

    def test_a_gradient_that_one_rank_lacks(self):
        def train(rank):
            trainer = Trainer(DistributedDataParallel(network()))
            trainer.model(batch(rank, 0)).sum().backward()
            if rank.number == 0:
                trainer.model.module[0].weight.grad = None
            trainer.step()

        self.assertIn("rank 0 without a gradient", self.seen(train)["witness"])

    def test_elements_in_another_order(self):
        def train(rank):
            model = DistributedDataParallel(nn.Linear(300000, 1, bias=False))
            trainer = Trainer(model)
            model(torch.rand(1, 300000)).sum().backward()
            model.module.weight.grad.copy_(torch.arange(300000.0))
            if rank.number == 1:  # two elements, of two chunks of the hash
                model.module.weight.grad[0, [5, 5 + lockstep_witness.CHUNK]] = torch.tensor(
                    [5.0 + lockstep_witness.CHUNK, 5.0]
                )
            trainer.step()

        self.assertEqual(list(self.seen(train)["parameters"]), ["weight"])

    def test_sparse_rows_and_half_precision(self):
        def train(rank):
            model = nn.ModuleList([nn.Embedding(4, 2, sparse=True), nn.Linear(2, 1).half(), nn.Linear(2, 1).double()])
            trainer = Trainer(model, every=2)
            for step in range(2):
                row = rank.number if step == 1 else 0
                model[0].weight.grad = torch.sparse_coo_tensor([[row]], torch.ones(1, 2), (4, 2))
                for layer in list(model)[1:]:
                    layer.weight.grad = torch.full_like(layer.weight, 1.0 + rank.number)
                    layer.bias.grad = torch.ones_like(layer.bias)
                trainer.witness.check()

        seen = self.seen(train)
        self.assertEqual(seen["step"], 2)
        self.assertEqual(list(seen["parameters"]), ["0.weight", "1.weight", "2.weight"])


class WitnessIsSilent(unittest.TestCase):
    def expect_silence(self, train, world=2):
        for rank in run(reporting(train), world):
            self.assertEqual((rank["end"], rank["witness"]), ("ok", "silent"))

    def test_plain_training(self):
        def train(rank):
            for options in ({}, {"gradient_as_bucket_view": True}, {"bucket_cap_mb": 0.0001}):
                trainer = Trainer(DistributedDataParallel(network(), **options))
                for step in range(5):
                    trainer.model(batch(rank, step)).sum().backward()
                    nn.utils.clip_grad_norm_(trainer.model.parameters(), 0.5)
                    trainer.step()

        self.expect_silence(train, 3)

    def test_accumulation_under_no_sync(self):
        def train(rank):
            trainer = Trainer(DistributedDataParallel(network()))
            for step in range(3):
                with trainer.model.no_sync():
                    for index in range(3):
                        trainer.model(batch(rank, 4 * step + index)).sum().backward()
                trainer.model(batch(rank, 4 * step + 3)).sum().backward()
                trainer.step()

        self.expect_silence(train)

    def test_the_pipeline_of_torchrec_4758_as_it_was_repaired(self):
        """Every forward under no_sync; one reduction after the last backward."""

        def train(rank):
            trainer = Trainer(DistributedDataParallel(network()))
            with trainer.model.no_sync():
                losses = [trainer.model(batch(rank, index)).sum() for index in range(8)]
            for loss in losses:
                loss.backward()
            for parameter in trainer.model.parameters():
                dist.all_reduce(parameter.grad)
            trainer.step()

        self.expect_silence(train)

    def test_unused_parameters(self):
        class Branches(nn.Module):
            def __init__(self):
                super().__init__()
                self.branches = nn.ModuleList([nn.Linear(8, 1) for _ in range(3)])

            def forward(self, inputs, used):
                return sum(self.branches[index](inputs).sum() for index in used)

        def train(rank):
            trainer = Trainer(DistributedDataParallel(Branches(), find_unused_parameters=True))
            for step, used in enumerate(([0], [rank.number], [0, 1], [1 - rank.number])):  # no rank uses the last one
                trainer.model(batch(rank, step), used).backward()
                trainer.step()

        self.expect_silence(train)

    def test_buffers_and_layouts(self):
        def train(rank):
            layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 36, 2)]
            trainer = Trainer(DistributedDataParallel(nn.Sequential(*layers).to(memory_format=torch.channels_last)))
            for step in range(3):
                inputs = batch(rank, step, 3 * 64).view(4, 3, 8, 8)
                trainer.model(inputs.contiguous(memory_format=torch.channels_last)).sum().backward()
                trainer.step()

        self.expect_silence(train)

    def test_static_graph(self):
        def train(rank):
            trainer = Trainer(DistributedDataParallel(network(), static_graph=True))
            for step in range(4):
                trainer.model(batch(rank, step)).sum().backward()
                trainer.step()

        self.expect_silence(train)

    def test_evaluation_and_ignored_parameters(self):
        def train(rank):
            module = nn.ModuleDict({"a": network(), "own": nn.Linear(4, 1)})
            module.forward = lambda inputs: module["own"](module["a"](inputs))
            DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, ["own.weight", "own.bias"])
            trainer = Trainer(DistributedDataParallel(module))
            for step in range(3):
                with torch.no_grad():
                    trainer.model.module(batch(rank, step))
                trainer.model(batch(rank, step)).sum().backward()
                trainer.step()

        self.expect_silence(train)

    def test_sparse_gradients_and_a_compressing_hook(self):
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

        def train(rank):
            table = DistributedDataParallel(nn.Embedding(16, 4, sparse=True))
            witness = lockstep_witness.watch(table)
            trainer = Trainer(DistributedDataParallel(network()))
            trainer.model.register_comm_hook(None, fp16_compress_hook)
            for step in range(3):
                table(torch.tensor([rank.number, 2 + step, 2 + step])).sum().backward()
                witness.check()
                table.zero_grad(set_to_none=True)
                trainer.model(batch(rank, step)).sum().backward()
                trainer.step()

        self.expect_silence(train, 3)

    def test_steps_that_are_not_compared_and_a_witness_that_was_closed(self):
        def train(rank):
            trainer = Trainer(DistributedDataParallel(network()), every=3)
            for step in range(5):
                model = trainer.model if step == 2 else trainer.model.module
                model(batch(rank, step)).sum().backward()
                trainer.step()
            trainer.witness.close()
            trainer.model.module(batch(rank, 0)).sum().backward()
            trainer.optimizer.step()

        self.expect_silence(train)


class WitnessRefuses(unittest.TestCase):
    def test_what_cannot_be_watched(self):
        def body(rank):
            rank.attempt("every", lambda: lockstep_witness.watch(network(), every=0))
            rank.attempt("nothing", lambda: lockstep_witness.watch(nn.ReLU()))
            layers = nn.ModuleList([nn.Linear(1, 1) for _ in range(1 + rank.number)])
            rank.attempt("numbers", lambda: lockstep_witness.watch(layers))
            rank.attempt("optimizer", lambda: lockstep_witness.watch(network(), object()))

        for rank in run(body):
            self.assertIn("every is 0", rank["every"])
            self.assertIn("no parameter that requires a gradient", rank["nothing"])
            self.assertIn("different numbers of parameters: [2, 4]", rank["numbers"])
            self.assertIn("call check() before each step", rank["optimizer"])


if __name__ == "__main__":
    unittest.main()
