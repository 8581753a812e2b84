"""The message of BIRD: scales, signs and indices of rows.

As in the prototype (wudonglei99/BIRD): a float32 scale for each tensor, the number of sign bits, the bits MSB
first with 1 for negative values, and a uint32 index for each row, counted from 0 in its layer. Behind these,
as the prototype sends them outside of what it counts, how many rows each layer has. All is made of 32-bit
words, so the bits are padded to a whole one. BIRD+ may have scales for rows (ours): float16, two in a word,
before the numbers of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import DecodeError, EncodeError
from netfold.homomorphic.codecs.bird.rows import Bits, Group, Rows, add_signs, write_signs
from netfold.homomorphic.message import WORD_BITS, Gradient, Words

Halves = NDArray[np.float16]


class Kept(NamedTuple):
    """What is sent of a group of rows."""

    rows: Rows
    scale: float  # of all rows; with `halves`, of 1
    halves: Halves | None = None  # of each row


def scale_of(scale: float, workers: int, group: Group) -> float:
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


def bits_count(groups: Sequence[Group], kept: Sequence[Kept]) -> int:
    """Elements whose signs are sent."""
    return sum(one.rows.size * group.sent_elements for group, one in zip(groups, kept, strict=True))


def written(gradient: Gradient, groups: Sequence[Group], kept: Sequence[Kept]) -> NDArray[np.uint32]:
    """The words of a message."""
    tensors = sum(1 + len(group.riders) for group in groups)
    count = bits_count(groups, kept)
    scales = np.zeros(tensors, np.float32)
    bits = np.zeros(-(-count // WORD_BITS), np.uint32)
    position = 0
    for group, one in zip(groups, kept, strict=True):
        scales[[group.tensor, *(rider.tensor for rider in group.riders)]] = one.scale
        for place, row_elements in group.parts():
            position = write_signs(gradient[place], row_elements, one.rows, bits, position)
    return np.concatenate(
        [
            scales.view(np.uint32),
            np.array([count], np.uint32),
            bits.byteswap(inplace=True),
            *(one.rows.astype(np.uint32) for one in kept),
            _packed([one.halves for one in kept if one.halves is not None]),
            np.array([one.rows.size for one in kept], np.uint32),
        ]
    )


def _packed(halves: list[Halves]) -> NDArray[np.uint32]:
    own = np.concatenate(halves) if halves else np.empty(0, np.float16)
    padded = np.zeros(-(-own.size // 2) * 2, np.float16)
    padded[: own.size] = own
    return padded.view(np.uint32)


class Read(NamedTuple):
    """A message, taken apart."""

    kept: list[Kept]
    bits: Bits


def read(words: Words, groups: Sequence[Group], sender: int, has_halves: bool = False) -> Read:
    """Take one worker's message apart.

    Raises
    ------
    DecodeError
        It is not such a message for these rows; the message names the worker and what is wrong.
    """
    tensors = sum(1 + len(group.riders) for group in groups)
    words = words.view(np.uint32)
    if words.size < tensors + 1 + len(groups):
        raise _damaged(sender, f"it has {words.size} words, too few for {tensors} scales")
    counts = words[words.size - len(groups) :].astype(np.int64)
    if any(count > group.rows for count, group in zip(counts, groups, strict=True)):
        raise _damaged(sender, "it has more rows than their layer")
    bits_wanted = sum(int(count) * group.sent_elements for count, group in zip(counts, groups, strict=True))
    first, rows_count = tensors + 1, int(counts.sum())
    bits_words = -(-bits_wanted // WORD_BITS)
    halves_words = -(-rows_count // 2) if has_halves else 0
    wanted = first + bits_words + rows_count + halves_words + len(groups)
    if (words[tensors], words.size) != (bits_wanted, wanted):
        found = f"it has {words.size} words and {words[tensors]} signs"
        raise _damaged(sender, f"{found}, its rows need {wanted} and {bits_wanted}")
    scales = words[:tensors].view(np.float32)
    indices = words[first + bits_words :][:rows_count].astype(np.int64)
    halves = words[first + bits_words + rows_count :][:halves_words].view(np.float16)
    kept, begin = [], 0
    for group, count in zip(groups, counts.tolist(), strict=True):
        rows, own = indices[begin : begin + count], halves[begin : begin + count]
        if count and not (rows[-1] < group.rows and (rows[1:] > rows[:-1]).all()):
            raise _damaged(sender, f"its indices are not ascending rows of {group.rows}")
        kept.append(Kept(rows, float(scales[group.tensor]), own if has_halves else None))
        begin += count
    return Read(kept, words[first : first + bits_words].byteswap())


def _damaged(sender: int, reason: str) -> DecodeError:
    return DecodeError(f"worker {sender}'s message of rows is damaged: {reason}")


def add(message: Read, groups: Sequence[Group], total: Gradient) -> None:
    """Add what a message stands for to a bucket."""
    position = 0
    for group, one in zip(groups, message.kept, strict=True):
        scales = np.full(one.rows.size, one.scale, np.float32)
        if one.halves is not None:
            scales *= one.halves
        for place, row_elements in group.parts():
            position = add_signs(message.bits, position, row_elements, one.rows, scales, total[place])
