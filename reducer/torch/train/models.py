"""The models that ci/torch train trains: small ones of the kinds that people train, with random weights and made-up data.

A task says how its model is made, what a rank gets in a step, what the loss is, and which optimizer steps. All of it follows
from seeds, so that each run, rank and process makes the same.
"""

import torch
from torch import nn


def seeded(*numbers):
    """A generator for this step and rank."""
    seed = 0
    for number in numbers:
        seed = seed * 1000003 + number + 1
    return torch.Generator().manual_seed(seed % 2**63)


class Task:
    """A model with its data. `make` is called with the random seed set."""

    find_unused = False

    def build(self):
        torch.manual_seed(1)
        return self.make()

    def make(self):
        raise NotImplementedError

    def batch(self, step, rank):
        raise NotImplementedError

    def loss(self, model, batch):
        inputs, target = batch
        return nn.functional.cross_entropy(model(inputs), target)

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)


class Resnet(Task):
    """torchvision's resnet50 (or another one of them) on images of 32 x 32."""

    def __init__(self, name="resnet50"):
        self.name = name

    def make(self):
        import torchvision

        return getattr(torchvision.models, self.name)(weights=None, num_classes=10)

    def batch(self, step, rank):
        generator = seeded(2, step, rank)
        return torch.randn(2, 3, 32, 32, generator=generator), torch.randint(10, (2,), generator=generator)


class Transformer(Task):
    """A BERT of transformers, made of its configuration: tied embeddings, layer norm, dropout, a pooler."""

    WORDS, LENGTH = 200, 16

    def make(self):
        from transformers import BertConfig, BertForSequenceClassification

        config = BertConfig(
            vocab_size=self.WORDS,
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=128,
            max_position_embeddings=self.LENGTH,
            num_labels=3,
        )
        return BertForSequenceClassification(config)

    def example(self, generator):
        return {
            "input_ids": torch.randint(self.WORDS, (self.LENGTH,), generator=generator),
            "attention_mask": torch.ones(self.LENGTH, dtype=torch.long),
            "labels": torch.randint(3, (), generator=generator),
        }

    def batch(self, step, rank):
        examples = [self.example(seeded(3, step, rank, index)) for index in range(4)]
        return {name: torch.stack([example[name] for example in examples]) for name in examples[0]}

    def loss(self, model, batch):
        return model(**batch).loss

    def optimizer(self, model):
        return torch.optim.AdamW(model.parameters(), 0.001)


class Embedding(Task):
    """Bags of words, whose table has sparse gradients, below two layers.

    A batch has each word once. PyTorch adds the entries of a row in an order of its own, and Lockstep in theirs (Appendix D
    of the contract), so that a row with three entries would have other bits.
    """

    WORDS = 5000

    def make(self):
        class Bag(nn.Module):
            def __init__(self):
                super().__init__()
                self.table = nn.EmbeddingBag(Embedding.WORDS, 32, sparse=True, mode="sum")
                self.layers = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))

            def forward(self, words):
                return self.layers(self.table(words))

        return Bag()

    def batch(self, step, rank):
        generator = seeded(4, step, rank)
        words = torch.randperm(self.WORDS, generator=generator)[:160].view(8, 20)
        return words, torch.randint(10, (8,), generator=generator)

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), 0.05)


TASKS = {
    "resnet50": Resnet("resnet50"),
    "resnet18": Resnet("resnet18"),
    "transformer": Transformer(),
    "embedding": Embedding(),
}
