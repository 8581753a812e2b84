"""Codec `bird_shared`: BIRD with the same rows at all workers, which any switch can sum. Ours.

BIRD's messages cannot be added: rows and scales are each worker's own. Here the workers first sum the norms
of their rows. All then have the same probabilities and one scale, and draw the same rows from a shared seed.
So no indices are sent, and what is sent are signs, −1, 0 or 1 for each element, summed as integers in as few
bits as the workers need. The scale is that of the mean of the workers' norms: the L1 norm that is
kept in expectation is the mean over workers, and not each worker's own as in `bird`. Zeros are sent as 0 and
not as 1: of an embedding, most workers have only zeros in a row that some worker keeps.

Norms are integers of 16 bits, 65535 at the largest norm of all workers, rounded at random so that the sum is
right in expectation, and sent in the same lanes, digit by digit if need be. Their sum is exact.
"""

from __future__ import annotations

import zlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import (
    Codec,
    CodecRefusal,
    Decoded,
    DecodeError,
    Encoder,
    Exchange,
    Origin,
    Promise,
)
from netfold.homomorphic.codecs import bird_rows as lanes
from netfold.homomorphic.codecs.bird_rows import (
    Norms,
    RowGroup,
    Rows,
    groups_of,
    norms_of,
    relative,
    sample_rows,
    scale_of,
    thin,
    uniforms,
)
from netfold.homomorphic.codecs.topk import check_share, count_of
from netfold.homomorphic.error_bounds import ErrorBound, RoundingBound
from netfold.homomorphic.merge import Merge, Merged, Work
from netfold.homomorphic.message import Gradient, Message, Round
from netfold.kernels import rng_streams
from netfold.kernels.keyed_random import mix_plain
from netfold.kinds import register

NORM_BITS = 16
_NORM_MAX = 2**NORM_BITS - 1
_LAUNCHES = 3
"""Kernel launches for each group: norms, draws, signs."""
_SHARED, _ROUNDING = 0, 1
"""Parts of keys: of draws that all workers share, and of each worker's own."""


@register
@dataclass(frozen=True)
class BirdShared(Codec):
    """The same random rows of all workers, by the sum of their norms, as signs summed on the way.

    share: rows that are sent at most, of each layer; at least one.
    lanes: width of the sums that adders keep apart: 32 (any adder, any number of workers; as many signs in a
        word as fit: 7 up to 7 workers, 6 up to 15, 5 up to 31), 4 (8 in a word, up to 7 workers, adders that
        wrap), 8 (up to 127), 16.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}
    kind: ClassVar[str] = "bird_shared"
    origin: ClassVar[Origin] = Origin("ours", "")
    merges: ClassVar[frozenset[Merge]] = frozenset({Merge.MAX, Merge.ADD})
    promise: ClassVar[Promise] = Promise.EXACT

    share: float = 0.1
    lanes: Literal[4, 8, 16, 32] = 32

    def __post_init__(self) -> None:
        check_share(self.share, usual=0.1)

    @property
    def lane_bits(self) -> int:
        """Width of the sums of signs, and of the digits of norms."""
        return self.lanes

    @property
    def workers_max(self) -> int:
        """Workers whose signs a lane can add up."""
        return lanes.workers_max(self.lane_bits)

    def refusal(self, workers: int, overflow: str) -> CodecRefusal | None:
        """As of all codecs; the remedy is another width of lanes."""
        refusal = super().refusal(workers, overflow)
        return None if refusal is None else CodecRefusal("lanes", refusal.reason, "lanes: 32")

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        return SharedEncoder(self, rank)

    def error_bound(self, contributions: Sequence[Gradient]) -> ErrorBound:
        """A sum of integers, scaled and rounded once."""
        return RoundingBound(len(contributions))


class _Chosen(NamedTuple):
    """What all workers send of a group."""

    rows: Rows
    scale: float  # a float32 number


@dataclass(frozen=True)
class SharedEncoder(Encoder):
    """One worker's side. It keeps nothing between rounds: what is not sent is lost."""

    codec: BirdShared
    rank: int

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Agree on the largest norms, sum the norms, choose rows, sum their signs.

        Raises
        ------
        EncodeError
            An element is NaN or infinite, or a scale is too large for the sum of the workers.
        DecodeError
            A sum is one that these workers cannot have.
        """
        if not gradient.size:
            return Decoded(np.zeros(0, np.float32), gradient)
        groups = groups_of(round.tensors_of(gradient))
        means = [norms_of(gradient, group, "l1") / max(1, group.row_elements) for group in groups]
        largest = np.array([_no_smaller(row_means.max(initial=0.0)) for row_means in means], np.float32)
        norms_bytes = 8 * sum(row_means.size for row_means in means)
        work = Work(gradient.nbytes, norms_bytes + largest.nbytes, 2 * gradient.size, len(groups))
        (merged,) = yield (Message(largest.view(np.int32), Merge.MAX, "largest norms", work),)
        live = merged.words.view(np.float32).astype(np.float64)
        chosen, signs = [], _Signs(*np.zeros((2, 0), np.int32))
        if live.any():
            sums = yield from self._summed_norms(means, live, round)
            chosen = [
                self._choose(number, group, norm_sums, most, round)
                for number, (group, norm_sums, most) in enumerate(zip(groups, sums, live, strict=True))
            ]
            signs = yield from self._summed_signs(gradient, groups, chosen, round)
        total, contribution = np.zeros((2, gradient.size), np.float32)
        _scatter(signs.own, groups, chosen, contribution)
        _scatter(signs.sums, groups, chosen, total)
        return Decoded(total, contribution)

    def _summed_norms(
        self, norms: Sequence[Norms], largest: Norms, round: Round
    ) -> Generator[tuple[Message, ...], tuple[Merged, ...], list[NDArray[np.int64]]]:
        """The sums over workers of each group's norms, in units of its largest norm / 65535."""
        numbers = [
            self._integers(number, row_norms, most, round)
            for number, (row_norms, most) in enumerate(zip(norms, largest, strict=True))
        ]
        together = np.concatenate(numbers)
        digits = lanes.DigitLanes.of(NORM_BITS, self.codec.lanes, round.workers)
        words = digits.packed(together)
        work = Work(8 * together.size, words.nbytes)
        (merged,) = yield (Message(words, Merge.ADD, "norms", work, lane_bits=self.codec.lanes),)
        summed, most = digits.unpacked(merged.words, together.size)
        if most > round.workers * (digits.base - 1):
            raise DecodeError(f"a sum of digits of norms is not one of {round.workers} workers: damaged")
        return np.split(summed, np.cumsum([row_norms.size for row_norms in norms])[:-1])

    def _integers(self, number: int, norms: Norms, largest: float, round: Round) -> NDArray[np.int64]:
        """This worker's norms of one group as integers, right in expectation."""
        integers = np.zeros(norms.size, np.int64)
        if largest > 0:
            key_parts = round.step, round.bucket, number, _ROUNDING, self.rank
            draws = uniforms(mix_plain(round.seed, rng_streams.BIRD_SHARED, *key_parts), norms.size)
            lanes.round_up_or_down(norms / largest * _NORM_MAX, draws, integers)
        return integers

    def _choose(
        self, number: int, group: RowGroup, sums: NDArray[np.int64], largest: float, round: Round
    ) -> _Chosen:
        """The rows that all workers keep of one group, and the scale of a sign."""
        key_parts = round.step, round.bucket, number, _SHARED
        rows = sample_rows(
            relative(sums.astype(np.float64)), mix_plain(round.seed, rng_streams.BIRD_SHARED, *key_parts)
        )
        limit = count_of(self.codec.share, group.rows)
        key = mix_plain(round.seed, rng_streams.BIRD_SECOND, *key_parts)
        rows, factor = thin(rows, limit, key)
        if not rows.size:
            return _Chosen(rows, 0.0)
        mean = int(sums.max()) * largest / (_NORM_MAX * round.workers)
        return _Chosen(rows, float(np.float32(scale_of(mean * factor, round.workers, group))))

    def _summed_signs(
        self, gradient: Gradient, groups: Sequence[RowGroup], chosen: Sequence[_Chosen], round: Round
    ) -> Generator[tuple[Message, ...], tuple[Merged, ...], _Signs]:
        """This worker's signs of the chosen rows, and their sums over workers."""
        parts = []
        for group, choice in zip(groups, chosen, strict=True):
            for span, row_elements in group.parts():
                parts.append(np.empty(choice.rows.size * row_elements, np.int32))
                lanes.gather_signs(gradient[span], row_elements, choice.rows, parts[-1])
        signs, bits = np.concatenate(parts), self.codec.lanes
        fields = lanes.sign_fields(bits, round.workers)
        shift = np.int32(not fields.is_signed)
        words = fields.packed(signs + shift)
        work = Work(4 * signs.size, words.nbytes, launches=_LAUNCHES * len(groups))
        decode_work = Work(words.nbytes, gradient.nbytes)
        digest = _digest(chosen)
        (merged,) = yield (
            Message(words, Merge.ADD, "signs", work, decode_work=decode_work, lane_bits=bits, digest=digest),
        )
        sums = fields.unpacked(merged.words, signs.size) - shift * np.int32(round.workers)
        if sums.size and np.abs(sums).max() > round.workers:
            raise DecodeError(f"a sum of signs is beyond the number of workers, {round.workers}: damaged")
        return _Signs(signs, sums)


class _Signs(NamedTuple):
    own: lanes.Integers
    sums: lanes.Integers


def _no_smaller(value: float) -> np.float32:
    """A float32 that is no smaller than a value; 0 for 0."""
    rounded = np.float32(value)
    return rounded if rounded >= value else np.nextafter(rounded, np.float32(np.inf))


def _digest(chosen: Sequence[_Chosen]) -> int:
    """A number that differs where workers have chosen other rows: those are not added to each other."""
    digest = 0
    for choice in chosen:
        digest = zlib.crc32(choice.rows.tobytes(), zlib.crc32(np.float32(choice.scale).tobytes(), digest))
    return digest


def _scatter(
    signs: lanes.Integers, groups: Sequence[RowGroup], chosen: Sequence[_Chosen], total: Gradient
) -> None:
    """Write scaled signs, or their sums, into a bucket."""
    first = 0
    for group, choice in zip(groups, chosen, strict=bool(chosen)):
        for span, row_elements in group.parts():
            count = choice.rows.size * row_elements
            lanes.scatter_sums(
                signs[first : first + count], row_elements, choice.rows, choice.scale, total[span]
            )
            first += count
