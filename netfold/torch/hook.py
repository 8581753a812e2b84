"""What PyTorch is given: the communication hook of DistributedDataParallel, and the reduce-scatter of FSDP2.

DDP compares the annotations of a hook with types. So this module must not import annotations from
`__future__`, which would make them text.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule

from netfold.errors import DataError, RunError
from netfold.torch.exchange import GradBucket
from netfold.torch.hook_state import State


def hook(state: State, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Give a bucket of DDP to a state: `model.register_comm_hook(state, hook)`.

    The future holds the bucket's own tensor with the mean over workers, once the rounds that its parameters
    belong to are done. What fails is raised by `backward`, a `RunError`; gradients are then those of this
    worker alone.
    """
    return state.hand_in(bucket)


class ReduceScatter:
    """What `FSDPModule.set_custom_reduce_scatter` takes, for one module.

    The codec sums the gradients of the whole module, and every worker keeps its shard: a codec's sums are
    decoded whole. So the bytes are those of an all-reduce. Tensors lie in the order of FSDP, all first shards
    first, so codecs see one vector without layers.
    """

    def __init__(self, state: State, number: int) -> None:
        # The module's number is also that of its bucket.
        self._state, self._number = state, number

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """A new tensor for input or output."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: dist.ReduceOp | dist.ReduceOp.RedOpType,
        async_op: bool = False,
    ) -> None:
        """Write this worker's shard of the mean, or of the sum if FSDP asks for that.

        Raises
        ------
        RunError
            The codec or the network fails, or FSDP asks for what is neither.
        """
        state = self._state
        if group.size() != state.workers:
            raise RunError(
                f"FSDP shards over {group.size()} workers, the state has {state.workers}",
                "give State the process group that the model is sharded over",
            )
        is_mean = op == dist.ReduceOp.AVG
        if not is_mean and op != dist.ReduceOp.SUM:
            raise RunError(
                f"FSDP asks for {op}, netfold gives means and sums",
                "leave out set_gradient_divide_factor",
            )
        reduced = torch.from_numpy(state.reduce(self._number, input_tensor, is_mean))
        output_tensor.copy_(reduced.view(state.workers, -1)[group.rank()])


def set_reduce_scatter(model: nn.Module, state: State) -> None:
    """Let a state sum the gradients of all modules that `fully_shard` was applied to, each a bucket.

    Raises
    ------
    DataError
        It was applied to none.
    """
    modules = [module for module in model.modules() if isinstance(module, FSDPModule)]
    if not modules:
        raise DataError("the model has no module that is fully sharded", "apply fully_shard before")
    for number, module in enumerate(modules):
        module.set_custom_reduce_scatter(ReduceScatter(state, number))  # type: ignore[arg-type]
