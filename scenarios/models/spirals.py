"""Which of three spirals is a point on? `make` returns a module, data, a loss and a score."""

import math

import torch
from torch import nn


def points(count):
    """Points on three spirals with noise, and the spiral of each."""
    spiral = torch.arange(count) % 3
    radius = torch.rand(count)
    angle = 4 * radius + 2 * math.pi / 3 * spiral + 0.1 * torch.randn(count)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1), spiral


def make():
    """The parts of a training; called once, with torch's generator seeded."""
    module = nn.Sequential(nn.Linear(2, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 3))
    data, (held_out, labels) = points(4096), points(1024)

    def score(module):
        return (module(held_out).argmax(dim=1) == labels).float().mean()

    return module, data, nn.CrossEntropyLoss(), score
