"""A model of my own: is the sum of some numbers positive?"""

import torch
from torch import nn


def make():
    """The parts of a training: a module, data, a loss and a score.

    netfold calls this once, with the generators of PyTorch, NumPy and Python seeded.
    """
    # Data to train on: a pair of tensors, or a dataset of pairs (input, target). The workers share them out.
    inputs = torch.randn(2048, 16)
    targets = (inputs.sum(dim=1) > 0).long()

    # Data for the score, on which no worker trains.
    held_out_inputs = torch.randn(512, 16)
    held_out_targets = (held_out_inputs.sum(dim=1) > 0).long()

    module = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 2))
    loss = nn.CrossEntropyLoss()  # a function of the module's output and the targets

    def score(module):
        """How good the module is; larger is better. Only `evaluate` in the scenario needs a score."""
        return (module(held_out_inputs).argmax(dim=1) == held_out_targets).float().mean()

    return module, (inputs, targets), loss, score
