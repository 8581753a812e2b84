"""Where the gradients of all workers are: one mapping of memory, used at every step, written by tensors.

PyTorch hands over each tensor's gradient when it is ready, and frees it; so beside the arena there is no
second copy of a gradient. Gradients that PyTorch gives as rows stay rows, and take memory for these alone. A
bucket with such a tensor is made dense when somebody asks for it, and for as long as somebody holds it; pages
on which there is no row then take no memory either, as long as they are only read.
"""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Collection, Sequence
from typing import overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from netfold.homomorphic.message import Gradient
from netfold.sim.workload.fusion import Bucket
from netfold.sim.workload.training.loop.rows import Rows, no_rows, rows_of

_ALIGNED = 16  # elements: a bucket begins on a cache line


class Arena:
    """The gradients of `workers` workers, by bucket.

    Parameters
    ----------
    buckets
        What the gradient is divided into.
    workers
        For how many workers there is room.
    sparse
        The names of the tensors whose gradients are kept as rows.
    """

    def __init__(self, buckets: Sequence[Bucket], workers: int, sparse: Collection[str] = ()) -> None:
        self._buckets, self._sparse = buckets, frozenset(sparse)
        places: dict[str, slice] = {}
        spans: list[slice | None] = []  # of the buckets that have no tensor of rows
        stop = 0
        for bucket in buckets:
            start = stop = -(-stop // _ALIGNED) * _ALIGNED
            for tensor in bucket.tensors:
                if tensor.name not in self._sparse:
                    places[tensor.name] = slice(stop, stop + tensor.elements)
                    stop += tensor.elements
            has_rows = any(tensor.name in self._sparse for tensor in bucket.tensors)
            spans.append(None if has_rows else slice(start, stop))
        row = -(-stop // _ALIGNED) * _ALIGNED
        values = mapped(workers * row).reshape(workers, row)
        shapes = {tensor.name: tensor.shape for bucket in buckets for tensor in bucket.tensors}
        self._row_elements = {name: int(np.prod(shapes[name][1:], dtype=np.int64)) for name in self._sparse}
        self._values = [{name: own[place] for name, place in places.items()} for own in values]
        self._tensors = [
            {name: torch.from_numpy(one).view(shapes[name]) for name, one in own.items()}
            for own in self._values
        ]
        self._rows: list[dict[str, Rows]] = [{} for _ in range(workers)]
        self._written: set[str] = set()
        self._dense = [[None if span is None else own[span] for span in spans] for own in values]

    @property
    def gradients(self) -> list[Sequence[Gradient]]:
        """The gradients `[worker][bucket]`, each 1-D, contiguous and float32; not to be written to.

        Where a bucket has rows it is made when it is asked for, and again once nobody holds it any longer.
        """
        found: list[Sequence[Gradient]] = []
        for worker, own in enumerate(self._dense):
            whole = [one for one in own if one is not None]
            found.append(whole if len(whole) == len(own) else _Buckets(self, worker))
        return found

    def begin(self, worker: int) -> None:
        """A worker's next gradient begins: what it had is overwritten."""
        self._written = set()
        self._rows[worker] = {}

    def put(self, worker: int, name: str, gradient: Tensor) -> None:
        """Write, or add to what was written since `begin`, the gradient of a tensor."""
        is_first = name not in self._written
        self._written.add(name)
        if name in self._sparse:
            rows = rows_of(gradient)
            self._rows[worker][name] = rows if is_first else self._rows[worker][name].plus(rows)
            return
        own = self._tensors[worker][name]
        dense = gradient.detach().to_dense() if gradient.is_sparse else gradient.detach()
        if is_first:
            own.copy_(dense)
        else:
            own.add_(dense)

    def end(self, worker: int) -> frozenset[str]:
        """The gradient is complete; returns what was written: the loss does not depend on other tensors."""
        for name, own in self._values[worker].items():
            if name not in self._written:
                own[:] = 0
        for name in self._sparse - self._written:
            self._rows[worker][name] = no_rows(self._row_elements[name])
        return frozenset(self._written)

    def rows(self, worker: int) -> dict[str, Rows]:
        """The rows of a worker's tensors that are kept as rows, by name."""
        return self._rows[worker]

    def bucket(self, worker: int, index: int) -> Gradient:
        """A bucket; one with rows is made dense in memory of its own."""
        own = self._dense[worker][index]
        if own is not None:
            return own
        bucket = self._buckets[index]
        made = mapped(bucket.elements)
        for tensor in bucket.tensors:
            if tensor.name in self._sparse:
                self._rows[worker][tensor.name].write(made[tensor.place])
            else:
                made[tensor.place] = self._values[worker][tensor.name]
        return made


class _Buckets(Sequence[Gradient]):
    """A worker's buckets, of which some have rows: these are made when they are asked for."""

    def __init__(self, arena: Arena, worker: int) -> None:
        self._arena, self._worker = arena, worker
        self._made: dict[int, weakref.ref[NDArray[np.float32]]] = {}  # that somebody may still hold

    def __len__(self) -> int:
        return len(self._arena._buckets)

    @overload
    def __getitem__(self, index: int) -> Gradient: ...

    @overload
    def __getitem__(self, index: slice) -> list[Gradient]: ...

    def __getitem__(self, index: int | slice) -> Gradient | list[Gradient]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        known = self._made.get(place)
        found = known() if known is not None else None
        if found is None:
            found = self._arena.bucket(self._worker, place)
            self._made[place] = weakref.ref(found)
        return found


def mapped(elements: int) -> Gradient:
    """Zeros `(elements,)`, float32, in an anonymous mapping of their own: pages take memory once written."""
    memory = mmap.mmap(-1, max(1, 4 * elements), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(memory, np.float32, elements)
