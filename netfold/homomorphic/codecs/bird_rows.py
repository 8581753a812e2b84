"""Rows of layers that are sampled: what `bird`, `bird_plus` and `bird_shared` share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import (
    Codec,
    Decoded,
    DecodeError,
    EncodeError,
    Encoder,
    Exchange,
    Request,
    Server,
)
from netfold.homomorphic.error_bounds import ErrorBound, FloatAddBound
from netfold.homomorphic.merge import COUNTER_BITS, WORD_BITS, Merge, Merged, Words, Work
from netfold.homomorphic.message import Gradient, Message, Round, Tensor
from netfold.kernels.compiled import kernel
from netfold.kernels.exp_log import exp, exps, log, logs
from netfold.kernels.keyed_random import Integer, mix_plain, splitmix64

# Rows of layers, which BIRD keeps or drops as a whole, and kernels over them.
#
# A row is what one output of a layer has: a convolution's weight (O, I, kh, kw) has O rows of I · kh · kw
# elements, a linear map's (O, I) has O of I, an embedding has one for each entry. Vectors of the same layer
# with as many elements as rows (a bias, a norm's parameters) ride along: element i goes with row i, under its
# index. Any other tensor is one row: a vector of another length, a number, a gradient of unknown tensors.


Norms = NDArray[np.float64]  # (rows,)
Rows = NDArray[np.int64]  # ascending
Bits = NDArray[np.uint32]  # bit 31 of word 0 is the first: in big-endian bytes, MSB first

_LANES = 64
_LONG = 128  # elements of a row that are summed in lanes; shorter rows one after the other


class Rider(NamedTuple):
    """A vector that rides along."""

    tensor: int  # its place among the bucket's tensors
    start: int  # offset in the bucket, elements


class RowGroup(NamedTuple):
    """Rows of a layer, and what rides along."""

    name: str
    """Name of the tensor with the rows."""
    tensor: int  # its place among the bucket's tensors
    start: int  # offset in the bucket, elements
    rows: int
    row_elements: int
    riders: tuple[Rider, ...] = ()

    @property
    def sent_elements(self) -> int:
        """Elements that are sent for a row, with those that ride along."""
        return self.row_elements + len(self.riders)

    def parts(self) -> tuple[tuple[slice, int], ...]:
        """The places of its tensors in the bucket, and what each has for a row."""
        carrier = slice(self.start, self.start + self.rows * self.row_elements), self.row_elements
        return carrier, *((slice(rider.start, rider.start + self.rows), 1) for rider in self.riders)


@lru_cache(maxsize=256)
def groups_of(tensors: tuple[Tensor, ...]) -> tuple[RowGroup, ...]:
    """The rows of a bucket's tensors, in the order of the tensors that have them.

    A tensor has rows if it has two dimensions or more. A vector rides with the first such tensor of its layer
    that has as many rows as the vector has elements.
    """
    carriers: dict[tuple[str, int], int] = {}
    for tensor_index, tensor in enumerate(tensors):
        if len(tensor.shape) > 1 and tensor.layer:
            carriers.setdefault((tensor.layer, tensor.shape[0]), tensor_index)
    riders: dict[int, tuple[Rider, ...]] = {}
    group_places: list[int] = []
    for tensor_index, tensor in enumerate(tensors):
        carrier = carriers.get((tensor.layer, tensor.elements)) if len(tensor.shape) == 1 else None
        if carrier is None:
            group_places.append(tensor_index)
        else:
            riders[carrier] = (*riders.get(carrier, ()), Rider(tensor_index, tensor.start))
    return tuple(_group(index, tensors[index], riders.get(index, ())) for index in group_places)


def _group(number: int, tensor: Tensor, riders: tuple[Rider, ...]) -> RowGroup:
    rows = tensor.shape[0] if len(tensor.shape) > 1 else min(1, tensor.elements)
    return RowGroup(tensor.name, number, tensor.start, rows, tensor.elements // max(1, rows), riders)


def norms_of(gradient: Gradient, group: RowGroup, kind: str) -> Norms:
    """The norm of every row, without what rides along: `kind` is l1 or l2.

    Raises
    ------
    EncodeError
        An element of the group is NaN or infinite.
    """
    norms = np.empty(group.rows, np.float64)
    (span, row_elements), *riding = group.parts()
    lanes = np.empty(_LANES, np.float64)
    (_sum_magnitudes if kind == "l1" else _sum_squares)(gradient[span], row_elements, lanes, norms)
    is_finite = np.isfinite(norms).all() and all(np.isfinite(gradient[part]).all() for part, _ in riding)
    if not is_finite:
        raise EncodeError(not_finite(gradient, group))
    return norms if kind == "l1" else np.sqrt(norms, out=norms)


def not_finite(gradient: Gradient, group: RowGroup) -> str:
    """Error text for the first element of a group that is NaN or infinite."""
    places = [span.start + np.flatnonzero(~np.isfinite(gradient[span])) for span, _ in group.parts()]
    index = int(np.concatenate(places).min())
    return (
        f"gradient[{index}] of {group.name or 'the bucket'} is {gradient[index]}: its row has no norm; "
        "lower the learning rate, or skip such steps"
    )


@kernel
def _sum_magnitudes(values: Gradient, row_elements: int, lanes: Norms, norms: Norms) -> None:
    """Write Σ|x| of every row. Long rows are summed in lanes, which compilers can add at once."""
    for row in range(norms.size):
        row_values = values[row * row_elements : (row + 1) * row_elements]
        total, done = 0.0, 0
        if row_values.size >= _LONG:
            for i in range(lanes.size):
                lanes[i] = 0.0
            done = row_values.size // _LANES * _LANES
            for block in range(row_values.size // _LANES):
                part = row_values[block * _LANES : block * _LANES + _LANES]
                for i in range(_LANES):
                    lanes[i] += abs(part[i])
            for i in range(lanes.size):
                total += lanes[i]
        tail = row_values[done:]
        for i in range(tail.size):
            total += abs(tail[i])
        norms[row] = total


@kernel
def _sum_squares(values: Gradient, row_elements: int, lanes: Norms, norms: Norms) -> None:
    """Write Σx² of every row, as `_sum_magnitudes`."""
    for row in range(norms.size):
        row_values = values[row * row_elements : (row + 1) * row_elements]
        total, done = 0.0, 0
        if row_values.size >= _LONG:
            for i in range(lanes.size):
                lanes[i] = 0.0
            done = row_values.size // _LANES * _LANES
            for block in range(row_values.size // _LANES):
                part = row_values[block * _LANES : block * _LANES + _LANES]
                for i in range(_LANES):
                    lanes[i] += np.float64(part[i]) * np.float64(part[i])
            for i in range(lanes.size):
                total += lanes[i]
        tail = row_values[done:]
        for i in range(tail.size):
            total += np.float64(tail[i]) * np.float64(tail[i])
        norms[row] = total


@kernel
def power_sums(values: Gradient, row_elements: int, largest: float, gamma: float, sums: Norms) -> None:
    """Write Σ(|x| / largest)^gamma of every row; zeros add nothing."""
    for row in range(sums.size):
        row_values = values[row * row_elements : (row + 1) * row_elements]
        total = 0.0
        for i in range(row_values.size):
            if row_values[i] != 0:
                total += exp(gamma * log(np.float64(abs(row_values[i])) / largest))
        sums[row] = total


@kernel
def write_signs(values: Gradient, row_elements: int, rows: Rows, bits: Bits, position: int) -> int:
    """Append the signs of some rows to `bits`, which are zeros from `position` on; return where they end.

    A bit is 1 if the value is below zero; −0.0 is not.
    """
    for r in range(rows.size):
        row_values = values[rows[r] * row_elements : (rows[r] + 1) * row_elements]
        head = min(row_values.size, (32 - position % 32) % 32)
        for i in range(head):
            bits[position // 32] |= np.uint32(row_values[i] < 0) << np.uint32(31 - position % 32)
            position += 1
        body = row_values[head:]
        words = bits[position // 32 : position // 32 + body.size // 32]
        for w in range(words.size):
            word_values = body[32 * w : 32 * w + 32]
            word = 0
            for j in range(word_values.size):
                word |= int(word_values[j] < 0) << (31 - j)
            words[w] = word
        position += 32 * words.size
        tail = body[32 * words.size :]
        for i in range(tail.size):
            bits[position // 32] |= np.uint32(tail[i] < 0) << np.uint32(31 - position % 32)
            position += 1
    return position


@kernel
def add_signs(
    bits: Bits, position: int, row_elements: int, rows: Rows, scales: Gradient, total: Gradient
) -> int:
    """Add ± the scale of each of some rows to the row's elements; return where their bits end."""
    for r in range(rows.size):
        row_total = total[rows[r] * row_elements : (rows[r] + 1) * row_elements]
        scale = scales[r]
        for i in range(row_total.size):
            is_negative = (bits[position // 32] >> np.uint32(31 - position % 32)) & np.uint32(1)
            row_total[i] += -scale if is_negative else scale
            position += 1
    return position


# Small integers packed in words, which adders sum: signs, and numbers digit by digit.
#
# A field holds one sum. In lanes of 32 bits a word has as many fields as fit without its sign bit: no sum
# of the workers leaves its field, so any adder of words will do. Lanes of 4 bits are fields up to the sign
# bit, so adders must wrap. Such fields count from 0: a sign is sent as 0, 1 or 2, and the sum of n workers
# is n more than that of the signs. Lanes of 8 and 16 bits are signed, and a field each.


_SIGNED: dict[int, type[np.signedinteger[Any]]] = {8: np.int8, 16: np.int16}
_FREE_BITS = WORD_BITS - 1
"""Bits of a word without its sign."""

Integers = NDArray[np.int32]


@dataclass(frozen=True)
class Fields:
    """Fields of words."""

    bits: int
    per_word: int
    is_signed: bool

    @property
    def limit(self) -> int:
        """The largest sum."""
        return (1 << self.bits - self.is_signed) - 1

    def packed(self, values: NDArray[Any]) -> NDArray[np.int32]:
        """Words of integers that fit, lowest bits first."""
        padded = np.zeros((-(-values.size // self.per_word), self.per_word), np.uint32)
        padded.ravel()[: values.size] = values if not self.is_signed else values & (2**self.bits - 1)
        words = padded[:, 0].copy()
        for field in range(1, self.per_word):
            words |= padded[:, field] << np.uint32(self.bits * field)
        return words.view(np.int32)

    def unpacked(self, words: NDArray[np.int32], count: int) -> Integers:
        """The first `count` fields."""
        if self.is_signed:
            return words.view(_SIGNED[self.bits])[:count].astype(np.int32)
        values = np.empty((words.size, self.per_word), np.int32)
        for field in range(self.per_word):
            values[:, field] = words.view(np.uint32) >> np.uint32(self.bits * field) & np.uint32(self.limit)
        return values.ravel()[:count]


def sign_fields(lane_bits: int, workers: int) -> Fields:
    """Fields for sums of as many signs: 2n + 1 sums need ⌈log2(2n + 1)⌉ bits."""
    if lane_bits == WORD_BITS:
        bits = (2 * workers).bit_length()
        return Fields(bits, _FREE_BITS // bits, False)
    return _lane(lane_bits)


def number_fields(lane_bits: int) -> Fields:
    """Fields for sums of digits of numbers: as wide as lanes allow."""
    return Fields(_FREE_BITS, 1, False) if lane_bits == WORD_BITS else _lane(lane_bits)


def _lane(lane_bits: int) -> Fields:
    return Fields(lane_bits, WORD_BITS // lane_bits, lane_bits in _SIGNED)


def workers_max(lane_bits: int) -> int:
    """Workers whose signs fields have room for."""
    if lane_bits == WORD_BITS:
        return ((1 << _FREE_BITS) - 1) // 2
    return _lane(lane_bits).limit // (2 if lane_bits == COUNTER_BITS else 1)


@dataclass(frozen=True)
class DigitLanes:
    """How numbers below 2^`number_bits` are sent, so that sums of digits of all workers fit in fields."""

    fields: Fields
    base: int
    count: int
    """Digits of each number."""

    @classmethod
    def of(cls, number_bits: int, lane_bits: int, workers: int) -> DigitLanes:
        """The largest base whose digits have sums that fit.

        Raises
        ------
        ValueError
            Not even sums of bits fit.
        """
        fields = number_fields(lane_bits)
        if workers > fields.limit:
            raise ValueError(
                f"lanes of {lane_bits} bits have room for digits of {fields.limit} workers, found {workers}"
            )
        base, count = min(2**number_bits, fields.limit // workers + 1), 1
        while base**count < 2**number_bits:
            count += 1
        return cls(fields, base, count)

    def packed(self, numbers: NDArray[np.int64]) -> NDArray[np.int32]:
        """Words of the digits of numbers, lowest first, number after number."""
        return self.fields.packed((numbers[:, None] // self._powers % self.base).ravel())

    def unpacked(self, words: NDArray[np.int32], count: int) -> tuple[NDArray[np.int64], int]:
        """Sums of numbers from words of sums of digits; and the largest sum of digits."""
        sums = self.fields.unpacked(words, count * self.count).reshape(count, self.count)
        return np.asarray(sums.astype(np.int64) @ self._powers), int(sums.max(initial=0))

    @property
    def _powers(self) -> NDArray[np.int64]:
        return self.base ** np.arange(self.count, dtype=np.int64)


@kernel
def gather_signs(values: Gradient, row_elements: int, rows: Rows, signs: Integers) -> None:
    """Write the sign of each element of some rows, row after row: −1, 0 or 1."""
    for r in range(rows.size):
        row_values = values[rows[r] * row_elements : (rows[r] + 1) * row_elements]
        into = signs[r * row_elements : (r + 1) * row_elements]
        for i in range(row_values.size):
            into[i] = np.int32(row_values[i] > 0) - np.int32(row_values[i] < 0)


@kernel
def scatter_sums(sums: Integers, row_elements: int, rows: Rows, scale: float, total: Gradient) -> None:
    """Write scale · sum into some rows, rounded once to float32."""
    for r in range(rows.size):
        row_sums = sums[r * row_elements : (r + 1) * row_elements]
        into = total[rows[r] * row_elements : (rows[r] + 1) * row_elements]
        for i in range(row_sums.size):
            into[i] = np.float32(scale * row_sums[i])


@kernel
def round_up_or_down(values: Norms, draws: Norms, numbers: Rows) -> None:
    """Round at random: up with a probability of the fraction, so that the expectation is the value."""
    for i in range(values.size):
        whole = np.floor(values[i])
        numbers[i] = np.int64(whole) + np.int64(draws[i] < values[i] - whole)


# The message of BIRD: scales, signs and indices of rows.
#
# As in the prototype (wudonglei99/BIRD): a float32 scale for each tensor, the number of sign bits, the bits
# MSB first with 1 for negative values, and a uint32 index for each row, counted from 0 in its layer. Behind
# these, as the prototype sends them outside of what it counts, how many rows each layer has. All is made of
# 32-bit words, so the bits are padded to a whole one. BIRD+ may have scales for rows (ours): float16, two
# in a word, before the numbers of rows.


Halves = NDArray[np.float16]


class Kept(NamedTuple):
    """What is sent of a group of rows."""

    rows: Rows
    scale: float
    """Scale of all rows; with `halves`, what a half of 1 stands for."""
    halves: Halves | None = None
    """Scale of each row, as a share of `scale`; None: all have the same."""


def scale_of(scale: float, workers: int, group: RowGroup) -> float:
    """A scale that is sent, if the sum of as many workers fits in float32.

    Raises
    ------
    EncodeError
        It does not.
    """
    limit = float(np.finfo(np.float32).max) / (2 * workers)
    if not scale <= limit:
        raise EncodeError(
            f"the scale of the rows of {group.name or 'the bucket'} is {scale:g}: sums of {workers} workers "
            f"may leave float32, up to {limit:g} fits; clip or scale the gradient"
        )
    return scale


def bits_count(groups: Sequence[RowGroup], samples: Sequence[Kept]) -> int:
    """Elements whose signs are sent."""
    return sum(sample.rows.size * group.sent_elements for group, sample in zip(groups, samples, strict=True))


def written_payload(
    gradient: Gradient, groups: Sequence[RowGroup], samples: Sequence[Kept]
) -> NDArray[np.uint32]:
    """The words of a message."""
    tensors = sum(1 + len(group.riders) for group in groups)
    count = bits_count(groups, samples)
    scales = np.zeros(tensors, np.float32)
    bits = np.zeros(-(-count // WORD_BITS), np.uint32)
    position = 0
    for group, sample in zip(groups, samples, strict=True):
        scales[[group.tensor, *(rider.tensor for rider in group.riders)]] = sample.scale
        for span, row_elements in group.parts():
            position = write_signs(gradient[span], row_elements, sample.rows, bits, position)
    return np.concatenate(
        [
            scales.view(np.uint32),
            np.array([count], np.uint32),
            bits.byteswap(inplace=True),
            *(kept_group.rows.astype(np.uint32) for kept_group in samples),
            _pack([kept_group.halves for kept_group in samples if kept_group.halves is not None]),
            np.array([kept_group.rows.size for kept_group in samples], np.uint32),
        ]
    )


def _pack(halves: list[Halves]) -> NDArray[np.uint32]:
    row_scales = np.concatenate(halves) if halves else np.empty(0, np.float16)
    padded = np.zeros(-(-row_scales.size // 2) * 2, np.float16)
    padded[: row_scales.size] = row_scales
    return padded.view(np.uint32)


class Read(NamedTuple):
    """A message, taken apart."""

    kept: list[Kept]
    bits: Bits


def read_payload(words: Words, groups: Sequence[RowGroup], sender: int, has_halves: bool = False) -> Read:
    """Take one worker's message apart.

    Raises
    ------
    DecodeError
        It is not such a message for these rows; the message names the worker and what is wrong.
    """
    tensors = sum(1 + len(group.riders) for group in groups)
    words = words.view(np.uint32)
    if words.size < tensors + 1 + len(groups):
        raise _damage_error(sender, f"it has {words.size} words, too few for {tensors} scales")
    counts = words[words.size - len(groups) :].astype(np.int64)
    if any(count > group.rows for count, group in zip(counts, groups, strict=True)):
        raise _damage_error(sender, "it has more rows than their layer")
    bits_wanted = sum(int(count) * group.sent_elements for count, group in zip(counts, groups, strict=True))
    first, rows_count = tensors + 1, int(counts.sum())
    bits_words = -(-bits_wanted // WORD_BITS)
    halves_words = -(-rows_count // 2) if has_halves else 0
    words_expected = first + bits_words + rows_count + halves_words + len(groups)
    if (words[tensors], words.size) != (bits_wanted, words_expected):
        contents = f"it has {words.size} words and {words[tensors]} signs"
        raise _damage_error(sender, f"{contents}, its rows need {words_expected} and {bits_wanted}")
    scales = words[:tensors].view(np.float32)
    indices = words[first + bits_words :][:rows_count].astype(np.int64)
    halves = words[first + bits_words + rows_count :][:halves_words].view(np.float16)
    samples, begin = [], 0
    for group, count in zip(groups, counts.tolist(), strict=True):
        rows, row_scales = indices[begin : begin + count], halves[begin : begin + count]
        if count and not (rows[-1] < group.rows and (rows[1:] > rows[:-1]).all()):
            raise _damage_error(sender, f"its indices are not ascending rows of {group.rows}")
        samples.append(Kept(rows, float(scales[group.tensor]), row_scales if has_halves else None))
        begin += count
    return Read(samples, words[first : first + bits_words].byteswap())


def _damage_error(sender: int, reason: str) -> DecodeError:
    return DecodeError(f"worker {sender}'s message of rows is damaged: {reason}")


def add_payload(message: Read, groups: Sequence[RowGroup], total: Gradient) -> None:
    """Add what a message stands for to a bucket."""
    position = 0
    for group, sample in zip(groups, message.kept, strict=True):
        scales = np.full(sample.rows.size, sample.scale, np.float32)
        if sample.halves is not None:
            scales *= sample.halves
        for span, row_elements in group.parts():
            position = add_signs(message.bits, position, row_elements, sample.rows, scales, total[span])


# Which rows are kept: BIRD's two samplings, and BIRD+'s Gamma correction.


GAMMA_MAX = 2.0**20  # above, only rows of the largest norm are kept
_BISECTIONS = 40


@kernel
def _write_uniforms(key: Integer, draws: Norms) -> None:
    for i in range(draws.size):
        draws[i] = np.float64(splitmix64(np.uint64(key) + np.uint64(i)) >> np.uint64(11)) * 2.0**-53


@kernel
def _write_hashes(key: Integer, draws: NDArray[np.uint64]) -> None:
    for i in range(draws.size):
        draws[i] = splitmix64(np.uint64(key) + np.uint64(i))


def uniforms(key: int, count: int) -> Norms:
    """Independent draws from [0, 1), `(count,)`; the same for the same key."""
    draws = np.empty(count, np.float64)
    _write_uniforms(np.uint64(key), draws)
    return draws


def relative(norms: Norms) -> Norms:
    """Norms over the largest one, BIRD's probabilities; zeros if all are zero."""
    largest = norms.max(initial=0.0)
    return norms / largest if largest > 0 else np.zeros_like(norms)


def sample_rows(probabilities: Norms, key: int) -> Rows:
    """The first sampling: each row by itself, with its probability."""
    return np.flatnonzero(uniforms(key, probabilities.size) < probabilities)


def thin(rows: Rows, count: int, key: int) -> tuple[Rows, float]:
    """The second sampling: `count` of the rows, all subsets alike; and the factor |rows| / count.

    All rows and a factor of 1 if there are no more.
    """
    if rows.size <= count:
        return rows, 1.0
    draws = np.empty(rows.size, np.uint64)
    _write_hashes(np.uint64(key), draws)  # they differ: splitmix64 is a bijection
    return rows[np.sort(np.argpartition(draws, count - 1)[:count])], rows.size / count


def correct(ratios: Norms, gamma: float) -> Norms:
    """Gamma correction, as of images: ratio^gamma; rows of zeros have a probability of 0 for any gamma."""
    return np.where(ratios > 0, exps(logs(ratios), gamma), 0.0)


def gamma_for(ratios: Norms, wanted: float) -> float:
    """The gamma whose probabilities add up to `wanted` rows, by bisection: their sum falls as gamma grows.

    0 if there are no more rows than that; `GAMMA_MAX` if more rows than that have the largest norm.
    """
    positive = ratios[ratios > 0]
    if positive.size <= wanted:
        return 0.0
    exponents = logs(positive)

    def expected(gamma: float) -> float:
        return float(exps(exponents, gamma).sum())

    low, high = 0.0, 1.0
    while expected(high) > wanted:
        if high >= GAMMA_MAX:
            return GAMMA_MAX
        low, high = high, 2 * high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if expected(middle) > wanted else (low, middle)
    return (low + high) / 2


# What `bird` and `bird_plus` have in common: rows of each worker's own, gathered.
#
# Every worker has its own rows and scales, so messages cannot be merged. A parameter server decodes them,
# adds them up and sends the dense sum down, as the prototype's server does with the mean. It may also pass
# the messages on, and a collective that delivers all of them lets every worker decode all.


Down = Literal["sum", "rows"]
_LAUNCHES = 3
"""Kernel launches for each group: norms, draws, signs."""
_NORM_BYTES = 8


class Draws(NamedTuple):
    """The keys of one worker's draws for one group of rows; no other worker, round or group has them."""

    place: tuple[int, ...]  # seed, step, bucket, worker, group

    def key(self, rng_stream: int) -> int:
        """The key of a stream of draws."""
        seed, *place = self.place
        return mix_plain(seed, rng_stream, *place)


class GatheredRows(Codec):
    """A codec that chooses rows at each worker, and has them gathered."""

    merges: ClassVar[frozenset[Merge]] = frozenset({Merge.GATHER})
    down: Down

    @property
    def has_row_scales(self) -> bool:
        """Whether every row is sent with a scale of its own."""
        return False

    @abstractmethod
    def choose(self, gradient: Gradient, group: RowGroup, workers: int, draws: Draws) -> Kept:
        """The rows of a group that a worker sends, and their scale.

        Raises
        ------
        EncodeError
            An element is NaN or infinite, or the scale is too large for the sum of the workers.
        """

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
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
        return _sum(parts, groups, self.has_row_scales)

    def work(self, parts: Sequence[Words], answer: Words) -> Work:
        """The messages are read, which are nearly all signs; each sign is an addition; zeros are written."""
        read_bytes = sum(part.nbytes for part in parts)
        signs = 8 * read_bytes
        return Work(read_bytes + 4 * signs, answer.nbytes + 4 * signs, flops=signs)


def _sum(parts: Sequence[Words], groups: Sequence[RowGroup], has_row_scales: bool) -> Gradient:
    total = np.zeros(sum(group.rows * group.sent_elements for group in groups), np.float32)
    for rank, part in enumerate(parts):
        add_payload(read_payload(part, groups, rank, has_row_scales), groups, total)
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
        words = self._encode(gradient, groups, round)
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
        contribution = _sum([words], groups, codec.has_row_scales)
        return Decoded(self._total(merged, gradient, groups), contribution)

    def _encode(self, gradient: Gradient, groups: Sequence[RowGroup], round: Round) -> Words:
        key_parts = round.seed, round.step, round.bucket, self.rank
        samples = [
            self.codec.choose(gradient, group, round.workers, Draws((*key_parts, number)))
            for number, group in enumerate(groups)
        ]
        return written_payload(gradient, groups, samples)

    def _total(self, merged: Merged, gradient: Gradient, groups: Sequence[RowGroup]) -> Gradient:
        """A server's sum, read-only because workers may share it; or that of the messages."""
        if merged.parts:
            return _sum(merged.parts, groups, self.codec.has_row_scales)
        if not merged.words.size:
            return np.zeros(gradient.size, np.float32)
        if merged.words.size != gradient.size:
            raise DecodeError(f"the sum of all rows has {merged.words.size} elements, not {gradient.size}")
        total: Gradient = merged.words.view(np.float32)
        total.flags.writeable = False
        return total
