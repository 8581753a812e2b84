"""Words between workers, by collectives of torch.distributed over a process group of their own.

Words have 32 bits and travel as int32 whatever their type, because not all backends carry unsigned words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from netfold.errors import RunError
from netfold.homomorphic.message import Merge, Words

_OPERATIONS = {Merge.ADD: dist.ReduceOp.SUM, Merge.MAX: dist.ReduceOp.MAX, Merge.OR: dist.ReduceOp.BOR}
BACKENDS = {  # that carry messages: the device that they take tensors from, and merges that they lack
    "gloo": ("cpu", frozenset[Merge]()),
    "nccl": ("cuda", frozenset({Merge.OR})),  # NCCL has no bitwise operations
}


class Wire:
    """One worker's end of the collectives of a group; all its workers call the same methods in turn.

    Parameters
    ----------
    group
        Used by nothing else, of one of `BACKENDS`.

    Attributes
    ----------
    rank, workers
        Of the group.
    reduces
        Merges that its all-reduce has.
    carried_bytes
        What this worker has given to collectives so far. How often a backend sends them is its matter.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.rank, self.workers, self.carried_bytes = group.rank(), group.size(), 0
        kind, lacks = BACKENDS[dist.get_backend(group)]
        self._group = group
        index = torch.cuda.current_device() if kind == "cuda" else 0  # other threads have another
        self._device = torch.device(kind, index)
        self._ranks = dist.get_process_group_ranks(group)
        self.reduces = frozenset(_OPERATIONS) - lacks

    def all_reduce(self, words: NDArray[Any], merge: Merge) -> NDArray[Any]:
        """Integers merged over all workers by one of `reduces`; sums wrap. int32 or int8, `(words,)`."""
        sent = self._tensor(words.copy())
        with _failures():
            dist.all_reduce(sent, op=_OPERATIONS[merge], group=self._group)
        return _array(sent)

    def gather_rows(self, row: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of all workers, `(workers, columns)`; they have the same number of columns."""
        sent = self._tensor(row)
        rows = [torch.empty_like(sent) for _ in range(self.workers)]
        with _failures():
            dist.all_gather(rows, sent, group=self._group)
        return np.stack([_array(one) for one in rows])

    def gather(self, words: Words, sizes: Sequence[int]) -> list[Words]:
        """The words of all workers, in rank order, of lengths that all know."""
        sent = self._tensor(_as_int32(words))
        parts = [sent if rank == self.rank else sent.new_empty(size) for rank, size in enumerate(sizes)]
        with _failures():
            if len(set(sizes)) == 1 and sizes[0]:
                parts = [torch.empty_like(sent) for _ in sizes]
                dist.all_gather(parts, sent, group=self._group)
            else:
                for rank, part in enumerate(parts):
                    if part.numel():
                        dist.broadcast(part, self._ranks[rank], group=self._group)
        return [_array(part).view(words.dtype) for part in parts]

    def scatter_shares(self, words: Words, ends: Sequence[int], is_present: Sequence[bool]) -> list[Words]:
        """Each worker's words from `ends[r]` to `ends[r + 1]`, at rank r, in rank order.

        Those that are not present send nothing, and are left out.
        """
        own = ends[self.rank + 1] - ends[self.rank]
        given = np.diff(ends).tolist() if is_present[self.rank] else [0] * self.workers
        taken = [own if is_there else 0 for is_there in is_present]
        sent = self._tensor(_as_int32(words))
        received = sent.new_empty(sum(taken))
        with _failures():
            dist.all_to_all_single(received, sent, taken, given, group=self._group)
        parts = _array(received).view(words.dtype).reshape(-1, own) if own else None
        return [words[:0] if parts is None else parts[number] for number in range(sum(is_present))]

    def _tensor(self, array: NDArray[Any]) -> torch.Tensor:
        self.carried_bytes += array.nbytes
        return torch.from_numpy(array).to(self._device)


def _as_int32(words: Words) -> NDArray[np.int32]:
    """The same bits; a copy where PyTorch could not send them as they lie."""
    found: NDArray[np.int32] = np.require(words, requirements=["C", "W"]).view(np.int32)
    return found


def _array(tensor: torch.Tensor) -> NDArray[Any]:
    return tensor.cpu().numpy()


@contextmanager
def _failures() -> Iterator[None]:
    """Say what failed where a collective does."""
    try:
        yield
    except RuntimeError as error:
        raise RunError(
            f"netfold's messages did not get through: {str(error).strip().splitlines()[0]}",
            "see whether another worker has ended before: its own error says why",
        ) from error
