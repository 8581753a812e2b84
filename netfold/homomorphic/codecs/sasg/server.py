"""Where uploads meet: the sum of what every worker sent last, kept worker by worker or as one sum.

A dense answer has all elements of the bucket. Where the bucket's tensors are unknown, it ends with the last
element that any worker has sent so far; the elements after it are zero.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import Request, Server, State, part_of, prefixed, prefixes
from netfold.homomorphic.codecs.sasg.uploads import Entries, entries_from, entries_state, read_entries
from netfold.homomorphic.message import Words, Work


class ServerOptions(NamedTuple):
    """What a server reads, keeps and sends."""

    is_whole: bool  # uploads have all elements
    is_incremental: bool
    sends_union: bool


def make_server(options: ServerOptions) -> Server:
    """The server part of these options."""
    return RunningSum(options) if options.is_incremental else LastUploads(options)


class _Summing(Server):
    """A server whose answer is a sum of all elements, or those of it that some worker has."""

    def __init__(self, options: ServerOptions) -> None:
        self.options = options
        self._work = Work()  # of the last merge

    def read(self, parts: Sequence[Words], dtype: type[np.generic]) -> dict[int, Entries]:
        """The uploads that arrived, by worker."""
        is_whole = self.options.is_whole
        return {
            rank: read_entries(part, is_whole, dtype, f"worker {rank}")
            for rank, part in enumerate(parts)
            if part.size
        }

    def work(self, parts: Sequence[Words], answer: Words) -> Work:
        """That of the last merge: what was added, and the sum that was written and sent."""
        return self._work

    def answer(self, total: NDArray[Any], members: NDArray[np.bool_] | None, read_bytes: int) -> Words:
        """A sum as words; of `members` alone if only they are sent. Remembers the work."""
        words = Entries(None, total).words
        if members is not None:
            elements = np.flatnonzero(members).astype(np.uint32)
            words = Entries(elements, total[elements]).words
        self._work = Work(read_bytes, total.nbytes + words.nbytes, flops=read_bytes // 4)
        return words

    @abstractmethod
    def merge(self, parts: Sequence[Words], request: Request) -> Words:
        """As published: the sum of the last uploads of all workers."""


class LastUploads(_Summing):
    """Keeps every worker's last upload, and adds them up in the order of ranks, in float32."""

    def __init__(self, options: ServerOptions) -> None:
        super().__init__(options)
        self._last: dict[int, dict[int, Entries]] = {}  # by bucket and worker

    def merge(self, parts: Sequence[Words], request: Request) -> Words:
        """Replace the uploads of those who sent one; add up all."""
        last = self._last.setdefault(request.bucket, {})
        last |= {rank: _copied(own) for rank, own in self.read(parts, np.float32).items()}
        end = max(_elements(request), 0, *(own.end for own in last.values()))
        total, members = np.zeros(end, np.float32), np.zeros(end, np.bool_)
        for rank in sorted(last):
            total[last[rank].place] += last[rank].values
            members[last[rank].place] = True
        read_bytes = sum(own.words.nbytes for own in last.values())
        return self.answer(total, members if self.options.sends_union else None, read_bytes)

    def state(self) -> State:
        """Every worker's last upload, by bucket."""
        state: State = {}
        for bucket, last in self._last.items():
            for rank, own in last.items():
                state |= entries_state(own, f"{bucket}/{rank}")
        return state

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a state."""
        self._last = {
            int(bucket): {
                int(rank): entries_from(state, f"{bucket}/{rank}")
                for rank in prefixes(part_of(state, bucket))
            }
            for bucket in prefixes(state)
        }


class RunningSum(_Summing):
    """Keeps the sum of all workers' last uploads, as integers, and adds the differences that arrive."""

    def __init__(self, options: ServerOptions) -> None:
        super().__init__(options)
        self._sums: dict[int, NDArray[np.int32]] = {}  # by bucket

    def merge(self, parts: Sequence[Words], request: Request) -> Words:
        """Add the differences of those who sent one."""
        changes = self.read(parts, np.int32)
        held = self._sums.get(request.bucket, np.zeros(0, np.int32))
        end = max(_elements(request), held.size, *(own.end for own in changes.values()))
        total = np.zeros(end, np.int32)
        total[: held.size] = held
        for own in changes.values():
            total[own.place] += own.values
        self._sums[request.bucket] = total
        read_bytes = held.nbytes + sum(part.nbytes for part in parts)
        return self.answer(total, total != 0 if self.options.sends_union else None, read_bytes)

    def state(self) -> State:
        """The sums, by bucket."""
        return prefixed("sum", {str(bucket): own.copy() for bucket, own in self._sums.items()})

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a state."""
        self._sums = {int(bucket): own.copy() for bucket, own in part_of(state, "sum").items()}


def _elements(request: Request) -> int:
    """Elements of the bucket; 0 if its tensors are unknown."""
    return sum(tensor.elements for tensor in request.tensors)


def _copied(entries: Entries) -> Entries:
    """Entries in memory of their own: words that arrive belong to others."""
    elements = None if entries.elements is None else entries.elements.copy()
    return Entries(elements, entries.values.copy())
