"""What `bird` and `bird_plus` have in common: rows of each worker's own, gathered.

Every worker has its own rows and scales, so messages cannot be merged. A parameter server decodes them, adds
them up and sends the dense sum down, as the prototype's server does with the mean. It may also pass the
messages on, and a collective that delivers all of them lets every worker decode all.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from netfold.homomorphic.bounds import ErrorBound, FloatAddBound
from netfold.homomorphic.codec import Codec, Decoded, DecodeError, Encoder, Exchange, Request, Server
from netfold.homomorphic.codecs.bird import payload
from netfold.homomorphic.codecs.bird.payload import Kept
from netfold.homomorphic.codecs.bird.rows import Group, groups_of
from netfold.homomorphic.kernels.keyed import mix_plain
from netfold.homomorphic.message import Gradient, Merge, Merged, Message, Words, Work
from netfold.homomorphic.round import Round, Tensor

Down = Literal["sum", "rows"]
_LAUNCHES = 3  # of each group: norms, draws, signs
_NORM_BYTES = 8


class Draws(NamedTuple):
    """The keys of one worker's draws for one group of rows; no other worker, round or group has them."""

    place: tuple[int, ...]  # seed, step, bucket, worker, group

    def key(self, purpose: int) -> int:
        """The key for a purpose."""
        seed, *rest = self.place
        return mix_plain(seed, purpose, *rest)


class GatheredRows(Codec):
    """A codec that chooses rows at each worker, and has them gathered."""

    merges: ClassVar[frozenset[Merge]] = frozenset({Merge.GATHER})
    down: Down

    @property
    def has_row_scales(self) -> bool:
        """Whether every row is sent with a scale of its own."""
        return False

    @abstractmethod
    def choose(self, gradient: Gradient, group: Group, workers: int, draws: Draws) -> Kept:
        """The rows of a group that a worker sends, and their scale.

        Raises
        ------
        EncodeError
            An element is NaN or infinite, or the scale is too large for the sum of the workers.
        """

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        """Encoder of one worker, without state."""
        return RowsEncoder(self, rank)

    def server(self, workers: int, seed: int) -> Server | None:
        """What decodes and adds up the rows of all workers, unless they are passed on."""
        return RowsServer(self.has_row_scales) if self.down == "sum" else None

    def error_bound(self, contributions: Sequence[Gradient]) -> ErrorBound:
        """The bound of float32 additions of what was sent."""
        return FloatAddBound(len(contributions))


@dataclass(frozen=True)
class RowsServer(Server):
    """Decodes the rows of all workers and adds them up, in rank order; keeps nothing."""

    has_row_scales: bool

    def merge(self, parts: Sequence[Words], request: Request) -> Words:
        """The dense sum, float32; empty if the tensors are unknown and nobody sent a row."""
        if request.tensors:
            groups = groups_of(request.tensors)
        else:  # one row, which whoever sends it has counted
            sizes = [int(part[1]) for part in parts if part.size > 1]
            groups = groups_of((Tensor("", (max(sizes, default=0),), ""),))
            if not sum(sizes):
                return np.zeros(0, np.float32)
        return _summed(parts, groups, self.has_row_scales)

    def work(self, parts: Sequence[Words], answer: Words) -> Work:
        """The messages are read, which are nearly all signs; each sign is an addition; zeros are written."""
        read_bytes = sum(part.nbytes for part in parts)
        signs = 8 * read_bytes
        return Work(read_bytes + 4 * signs, answer.nbytes + 4 * signs, flops=signs)


def _summed(parts: Sequence[Words], groups: Sequence[Group], has_row_scales: bool) -> Gradient:
    total = np.zeros(sum(group.rows * group.sent_elements for group in groups), np.float32)
    for rank, part in enumerate(parts):
        payload.add(payload.read(part, groups, rank, has_row_scales), groups, total)
    return total


@dataclass(frozen=True)
class RowsEncoder(Encoder):
    """One worker's side. It keeps nothing between rounds: what is not sent is lost."""

    codec: GatheredRows
    rank: int

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Send some rows, and take the sum of those of all workers.

        Raises
        ------
        EncodeError
            As `GatheredRows.choose`.
        DecodeError
            A message does not have these rows, or the sum has another length.
        """
        if not gradient.size:
            return Decoded(np.zeros(0, np.float32), gradient)
        groups, codec = groups_of(round.tensors_of(gradient)), self.codec
        words = self._encoded(gradient, groups, round)
        bits = int(words[sum(1 + len(group.riders) for group in groups)])
        norms_bytes = _NORM_BYTES * sum(group.rows for group in groups)
        work = Work(
            gradient.nbytes + 4 * bits + norms_bytes,
            words.nbytes + norms_bytes,
            flops=2 * gradient.size,
            launches=_LAUNCHES * len(groups),
        )
        signs = 4 * bits * (round.workers if codec.down == "rows" else 0)
        decode_work = Work(gradient.nbytes + signs, gradient.nbytes + signs)
        (merged,) = yield (Message(words, Merge.GATHER, "rows", work, decode_work=decode_work),)
        contribution = _summed([words], groups, codec.has_row_scales)
        return Decoded(self._total(merged, gradient, groups), contribution)

    def _encoded(self, gradient: Gradient, groups: Sequence[Group], round: Round) -> Words:
        place = round.seed, round.step, round.bucket, self.rank
        kept = [
            self.codec.choose(gradient, group, round.workers, Draws((*place, number)))
            for number, group in enumerate(groups)
        ]
        return payload.written(gradient, groups, kept)

    def _total(self, merged: Merged, gradient: Gradient, groups: Sequence[Group]) -> Gradient:
        """A server's sum, read-only because workers may share it; or that of the messages."""
        if merged.parts:
            return _summed(merged.parts, groups, self.codec.has_row_scales)
        if not merged.words.size:
            return np.zeros(gradient.size, np.float32)
        if merged.words.size != gradient.size:
            raise DecodeError(f"the sum of all rows has {merged.words.size} elements, not {gradient.size}")
        total: Gradient = merged.words.view(np.float32)
        total.flags.writeable = False
        return total
