"""The communication hook of DistributedDataParallel.

DDP compares the annotations of a hook with types. So this module must not import annotations from
`__future__`, which would make them text.
"""

import torch

from netfold.torch.exchange import GradBucket
from netfold.torch.state import State


def hook(state: State, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Give a bucket of DDP to a state: `model.register_comm_hook(state, hook)`.

    The future holds the bucket's own tensor with the mean over workers, once the rounds that its parameters
    belong to are done. What fails is raised by `backward`, a `RunError`; gradients are then those of this
    worker alone.
    """
    return state.hand_in(bucket)
