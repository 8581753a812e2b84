"""A user's file in a folder, as a model."""

from __future__ import annotations

from pathlib import Path

from netfold.sim.workload.model import Model, TaskSettings
from netfold.sim.workload.user_model import UserModel

HEADER = """import torch; from torch import nn
DATA = (torch.arange(36.0).reshape(9, 4) / 36, torch.ones(9, 2))
LOSS, MODULE = nn.MSELoss(), lambda: nn.Linear(4, 2)
"""  # three lines
BATCH, WORKERS, SEED = 4, 2, 1


def located(folder: Path, body: str, holds_out: bool = False) -> Model:
    """The model of the function `make` in `mine.py`, whose lines after the header are `body`."""
    (folder / "mine.py").write_text(f"{HEADER}{body}", "utf-8")
    settings = TaskSettings("", BATCH, WORKERS, SEED, holds_out)
    return UserModel(make="mine.py:make").locate(folder, settings)
