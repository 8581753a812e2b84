"""What the server of processes imports once for all of them, with all kernels ready."""

from __future__ import annotations

import numpy as np
import torch.nn.parallel  # noqa: F401
from torch.distributed.fsdp import fully_shard  # noqa: F401

import netfold.torch  # noqa: F401
from netfold.homomorphic.fold import fold
from netfold.homomorphic.message import Round
from netfold.sim.workload import training as workload  # noqa: F401
from netfold.torch.wire import make_codec


def _ready() -> None:
    codec = make_codec("packed", {"values": "exact"})
    fold([codec.worker(rank, 2, 1) for rank in range(2)], [np.ones(8, np.float32)] * 2, Round(0, 0, 2, 1))


_ready()
