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

    def __init__(self, model, watches_steps=HAS_HOOKS, **options):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        self.witness = lockstep_witness.watch(model, self.optimizer if watches_steps else None, **options)

    def run(self, rank, steps):
        for step in range(steps):
            self.model(batch(rank, step)).sum().backward()
            self.step()

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
            rank.report("kind", type(error).__name__)
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
        self.assertIn("every rank: forward without the wrapper, backward. No backward was reduced", seen["witness"])
        self.assertIn("Call the wrapper, and not what it wraps", seen["witness"])

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
        self.assertIn("every rank: 4 x forward under no_sync, backward, forward under no_sync, backward", seen["witness"])
        self.assertIn("backward, synced forward, 4 x backward. A synced forward has", seen["witness"])
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


class WitnessTellsTheCause(unittest.TestCase):
    """Each loop has one cause, which the test knows; WitnessIsSilent has the loops without it."""

    seen = WitnessFinds.seen

    def test_a_learning_rate_of_a_rank_s_own(self):
        def train(rank):
            trainer = Trainer(DistributedDataParallel(network()))
            trainer.optimizer.param_groups[0]["lr"] = 0.1 * (1 + rank.number)
            trainer.run(rank, 4)

        seen = self.seen(train, 3)
        self.assertEqual((seen["kind"], seen["step"], len(seen["parameters"])), ("ParametersDiffer", 2, 4))
        self.assertIn("lr of group 0 is 0.1 on rank 0, 0.2 on rank 1, 0.3", seen["witness"])

    def test_a_learning_rate_of_an_optimizer_that_watch_was_not_given(self):
        def train(rank):
            model = DistributedDataParallel(network())
            witness = lockstep_witness.watch(model)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * (1 + rank.number))
            for step in range(2):
                model(batch(rank, step)).sum().backward()
                witness.check()
                optimizer.step()
                optimizer.zero_grad()

        self.assertIn("lr of group 0 is 0.1 on rank 0, 0.2 on rank 1", self.seen(train)["witness"])

    def test_a_loss_scale_of_a_rank_s_own_after_the_comparison(self):
        def train(rank):
            model = DistributedDataParallel(network())
            witness = lockstep_witness.watch(model)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for step in range(2):
                (model(batch(rank, step)).sum() * 1024.0).backward()
                witness.check()
                for parameter in model.parameters():
                    parameter.grad /= 1024.0 if rank.number == 0 else 512.0
                optimizer.step()
                optimizer.zero_grad()

        seen = self.seen(train)
        self.assertEqual(seen["kind"], "ParametersDiffer")
        self.assertIn("as after a scale of its own: by 1 on rank 0, 2 on rank 1", seen["witness"])

    def test_a_clip_of_a_rank_s_own_before_the_comparison(self):
        def train(rank):
            trainer = Trainer(DistributedDataParallel(network()))
            trainer.model(batch(rank, 0)).sum().backward()
            for parameter in trainer.model.parameters():
                parameter.grad *= 0.5**rank.number
            trainer.step()

        seen = self.seen(train)
        self.assertEqual(seen["kind"], "GradientsDiffer")
        self.assertIn("the last backward was reduced", seen["witness"])
        self.assertIn("as after a scale or a clip of its own: by 1 on rank 0, 0.5 on rank 1", seen["witness"])

    def test_a_step_that_one_rank_leaves_out(self):
        def train(rank):
            trainer = Trainer(DistributedDataParallel(network()), watches_steps=False)
            for step in range(3):
                trainer.model(batch(rank, step)).sum().backward()
                trainer.witness.check()
                if (rank.number, step) != (1, 1):
                    trainer.optimizer.step()
                trainer.optimizer.zero_grad()

        seen = self.seen(train)
        self.assertEqual((seen["kind"], seen["step"]), ("ParametersDiffer", 3))
        self.assertIn("other numbers of times since watch(): 2 on rank 0, 1 on rank 1", seen["witness"])

    def test_one_element_of_one_parameter_that_a_rank_changes(self):
        def train(rank):
            model = DistributedDataParallel(nn.Sequential(*[nn.Linear(2, 2) for _ in range(15)]))
            witness = lockstep_witness.watch(model)
            for step in range(20):
                witness.check()
                if (rank.number, step) == (1, 3):
                    model.module[8].weight.data[1, 1] += 1

        seen = self.seen(train)
        self.assertEqual(seen["parameters"], {"8.weight": [[0], [1]]})
        self.assertLessEqual(seen["step"], 4 + 10)
        self.assertIn("by what a rank did on its own", seen["witness"])

    def test_parameters_that_nothing_has_made_equal(self):
        def train(rank):
            torch.manual_seed(rank.number)
            lockstep_witness.watch(nn.Linear(2, 2)).check()

        self.assertIn("differed already when watch() was called", self.seen(train)["witness"])

    def test_the_last_forward_is_under_no_sync(self):
        def train(rank):
            trainer = Trainer(DistributedDataParallel(network()))
            trainer.model(batch(rank, 0)).sum().backward()
            with trainer.model.no_sync():
                trainer.model(batch(rank, 1)).sum().backward()
            trainer.step()

        seen = self.seen(train)["witness"]
        self.assertIn("every rank: synced forward, backward, forward under no_sync, backward.", seen)
        self.assertIn("The last forward was under no_sync on ranks 0, 1", seen)

    def test_the_last_forward_is_without_the_wrapper_on_one_rank(self):
        def train(rank):
            trainer = Trainer(DistributedDataParallel(network()))
            trainer.model(batch(rank, 0)).sum().backward()
            if rank.number == 1:
                trainer.model.module(batch(rank, 1)).sum().backward()
            trainer.step()

        seen = self.seen(train)["witness"]
        self.assertIn("rank 0: synced forward, backward; rank 1: synced forward, backward, forward without the", seen)
        self.assertIn("The last forward was without the wrapper on rank 1", seen)

    def test_every_forward_is_under_no_sync(self):
        def train(rank):
            trainer = Trainer(DistributedDataParallel(network()))
            with trainer.model.no_sync():
                trainer.model(batch(rank, 0)).sum().backward()
            trainer.step()

        self.assertIn("and every forward was under no_sync", self.seen(train)["witness"])

    def expect_change(self, change, text, before_watch=False):
        def train(rank):
            model = DistributedDataParallel(network())
            if before_watch:
                change(model)
            witness = lockstep_witness.watch(model)
            if not before_watch:
                change(model)
            model(batch(rank, 0).to(next(model.parameters()).dtype)).sum().backward()
            witness.check()

        self.assertIn("first that of 0.weight", self.seen(train)["witness"])
        self.assertIn("0.weight was %s on ranks 0, 1 after the module was wrapped" % text, self.seen(train)["witness"])

    def test_converted_parameters(self):
        self.expect_change(
            lambda model: model.double(), "converted or moved: float32 on cpu when watch() was called, and float64 on cpu now"
        )

    def test_parameters_that_were_converted_and_back(self):
        self.expect_change(lambda model: model.double().float(), "moved or converted, and is float32 on cpu again")

    def test_parameters_that_were_converted_before_they_were_watched(self):
        self.expect_change(lambda model: model.double().float(), "moved or converted", before_watch=True)

    def test_another_parameter_in_the_place(self):
        def replace(model):
            model.module[0].weight = nn.Parameter(model.module[0].weight.detach().clone())

        self.expect_change(replace, "replaced by another parameter")

    def test_a_gradient_of_one_rank_that_is_not_finite(self):
        def train(rank):
            trainer = Trainer(DistributedDataParallel(network()))
            trainer.run(rank, 2)
            inputs = batch(rank, 2)
            if rank.number == 1:
                inputs[0, 0] = float("nan")
            trainer.model(inputs).sum().backward()
            trainer.step()

        seen = self.seen(train, 3)
        self.assertEqual((seen["kind"], seen["step"]), ("NotFinite", 3))
        self.assertEqual(seen["parameters"]["0.weight"], [[1]])
        self.assertIn("That of rank 1 was not before the reduction", seen["witness"])

    def test_a_sum_that_is_not_finite(self):
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

        def train(rank):
            trainer = Trainer(DistributedDataParallel(network()))
            trainer.model.register_comm_hook(None, fp16_compress_hook)
            (trainer.model(batch(rank, 0)).sum() * 1e6).backward()
            trainer.step()

        seen = self.seen(train)
        self.assertEqual(seen["kind"], "NotFinite")
        self.assertIn("were: the sum, or what came after it, was not", seen["witness"])

    def test_a_group_of_one_rank(self):
        def train(rank):
            groups = [dist.new_group([each]) for each in range(2)]
            lockstep_witness.watch(DistributedDataParallel(network(), process_group=groups[rank.number]))

        seen = self.seen(train)
        self.assertEqual(seen["kind"], "GroupOfOne")
        self.assertIn("the process group of the model has one rank, and the job has 2", seen["witness"])


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

    def test_a_group_of_one_rank_that_is_given(self):
        def train(rank):
            group = [dist.new_group([each]) for each in range(2)][rank.number]
            trainer = Trainer(DistributedDataParallel(network(), process_group=group), group=group)
            trainer.run(rank, 2)

        self.expect_silence(train)

    def test_parameters_that_are_not_compared(self):
        def train(rank):
            trainer = Trainer(DistributedDataParallel(network()), parameters_every=0)
            trainer.optimizer.param_groups[0]["lr"] = 0.1 * (1 + rank.number)
            trainer.run(rank, 4)

        self.expect_silence(train)

    def test_steps_that_a_scaler_leaves_out(self):
        def train(rank):
            trainer = Trainer(DistributedDataParallel(network()), watches_steps=False, finite=False)
            for step, scale in enumerate((1e38, 1e38, 4.0)):
                (trainer.model(batch(rank, step)).sum() * scale * 1e4).backward()
                trainer.witness.check()
                if step == 2:
                    trainer.optimizer.step()
                trainer.optimizer.zero_grad()

        self.expect_silence(train)

    def test_a_gradient_that_was_not_finite_in_a_step_that_was_left_out(self):
        def train(rank):
            trainer = Trainer(DistributedDataParallel(network()))
            (trainer.model(batch(rank, 0)).sum() * float("inf")).backward()
            trainer.optimizer.zero_grad()
            trainer.run(rank, 2)

        self.expect_silence(train)

    def test_large_numbers_are_finite(self):
        def train(rank):
            model = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4).half(), nn.Linear(4, 4).bfloat16()])
            witness = lockstep_witness.watch(model)
            for parameter in model.parameters():
                parameter.grad = torch.full_like(parameter, torch.finfo(parameter.dtype).max)
            witness.check()

        self.expect_silence(train)

    def test_a_gradient_that_is_the_negative_or_the_conjugate_of_memory(self):
        """Its bits are those of its values, and not those that its memory holds."""

        def train(rank):
            model = nn.ParameterList([nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3, dtype=torch.complex64))])
            witness = lockstep_witness.watch(model)
            values = torch.tensor([1 + 2j, 3 - 4j, 5j])
            negative = values.conj().imag  # of which the memory holds 2, -4, 5
            assert negative.is_neg() and values.conj().is_conj()
            model[0].grad = negative if rank.number == 0 else torch.tensor([-2.0, 4.0, -5.0])
            model[1].grad = values.conj() if rank.number == 0 else torch.tensor([1 - 2j, 3 + 4j, complex(0, -5)])
            witness.check()

        self.expect_silence(train)

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
            trainer = Trainer(DistributedDataParallel(network()), every=3, parameters_every=0)
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
