"""What an upload holds: the largest elements of every tensor, with error feedback in units of the update.

A worker adds what it held back to γ · gradient, sends the largest elements of every tensor, and holds back
the rest: sent + held back now = γ · gradient + held back before, exactly, in float32. A worker that does not
upload holds back the same as before, and discards its gradient.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import DecodeError, EncodeError, State
from netfold.homomorphic.codecs.sasg.rule import UploadRule
from netfold.homomorphic.kernels.largest import largest
from netfold.homomorphic.message import WORD_MAX, Gradient, Words, Work
from netfold.homomorphic.numbers.refusals import not_finite
from netfold.homomorphic.round import Round

FRACTION_BITS = 24
FRACTION_BITS_MAX = 60  # a step of 2**-60 and sums of int32 stay normal float32 numbers


def count_of(share: float, elements: int) -> int:
    """Elements of a tensor that an upload holds: the share rounded down, but at least one if it has any."""
    return min(elements, max(1, math.floor(share * elements)))


class Entries(NamedTuple):
    """Elements of a bucket and their values; with `elements` None all, in order."""

    elements: NDArray[np.uint32] | None  # ascending
    values: NDArray[Any]  # float32, or int32 multiples of a grid's step

    @property
    def place(self) -> Any:
        """What selects the elements in an array of all."""
        return slice(None) if self.elements is None else self.elements

    @property
    def words(self) -> Words:
        """As words of a message: elements, if they are not all, then values."""
        bits: Words = self.values.view(np.uint32)
        return bits.copy() if self.elements is None else np.concatenate([self.elements, bits])

    @property
    def end(self) -> int:
        """The element after the last."""
        return self.values.size if self.elements is None else int(self.elements[-1]) + 1

    def dense(self, elements: int) -> NDArray[Any]:
        """The values of all elements, zero where there are none."""
        found = np.zeros(elements, self.values.dtype)
        found[self.place] = self.values
        return found


def read_entries(words: Words, is_whole: bool, dtype: type[np.generic], sender: str) -> Entries:
    """The entries of a message that has words.

    Raises
    ------
    DecodeError
        The words are no such list.
    """
    if is_whole:
        return Entries(None, words.view(dtype))
    if words.size % 2:
        raise DecodeError(f"{sender} sends {words.size} words: elements and values need an even number")
    elements, values = np.split(words, 2)
    if (elements[1:] <= elements[:-1]).any():
        raise DecodeError(f"{sender} sends elements that are not in ascending order")
    return Entries(elements, values.view(dtype))


@dataclass(frozen=True)
class Grid:
    """Multiples of a step 2**−fraction_bits, small enough that differences of all workers add up in int32.

    A float32 is either finer than the step, and rounded to a multiple of it, or a multiple already. So values
    on the grid are float32 numbers, and what rounding leaves is one too.
    """

    fraction_bits: int
    workers: int

    @property
    def limit(self) -> int:
        """The largest multiple that one worker may have."""
        return WORD_MAX // (2 * self.workers)

    def integers(self, values: Gradient) -> NDArray[np.int32]:
        """The nearest multiples; ties go to even ones.

        Raises
        ------
        EncodeError
            A value is too large.
        """
        multiples = np.rint(np.ldexp(values.astype(np.float64), self.fraction_bits))
        if values.size and (largest_one := float(np.abs(multiples).max())) > self.limit:
            most = math.ldexp(self.limit, -self.fraction_bits)
            found = math.ldexp(largest_one, -self.fraction_bits)
            raise EncodeError(
                f"an element of an upload is {found:g}: with {self.workers} workers and fraction_bits "
                f"{self.fraction_bits} the largest is {most:g}; lower the learning rate, or use fewer bits"
            )
        return multiples.astype(np.int32)

    def values(self, integers: NDArray[np.int32]) -> Gradient:
        """The float32 nearest to each multiple."""
        return np.ldexp(integers.astype(np.float32), -self.fraction_bits)


def check_fraction_bits(fraction_bits: int) -> None:
    """Reject a step that is above 1 or too small.

    Raises
    ------
    ValueError
        It is.
    """
    if not 0 <= fraction_bits <= FRACTION_BITS_MAX:
        raise ValueError(
            f"fraction_bits is {fraction_bits}: must be from 0 to {FRACTION_BITS_MAX}, "
            f"{FRACTION_BITS} is usual"
        )


class Change(NamedTuple):
    """One worker's upload: what it contributes from now on, and what it contributed before."""

    now: Entries
    before: Entries | None  # None: nothing

    def difference(self, elements: int) -> NDArray[np.int32]:
        """Now minus before, of a bucket of so many elements on a grid."""
        change: NDArray[np.int32] = self.now.dense(elements)
        if self.before is not None:
            change[self.before.place] -= self.before.values
        return change


class Uploads:
    """What one worker holds back and what it sent last, bucket by bucket; values on a grid if it has one."""

    def __init__(self, share: float, grid: Grid | None = None) -> None:
        self._share, self._grid = share, grid
        self._held: dict[int, Gradient] = {}
        self._last: dict[int, Entries] = {}

    def upload(self, gradient: Gradient, rate: np.float32, round: Round) -> Change:
        """Choose what to send of a gradient and of what was held back; hold back the rest.

        Raises
        ------
        EncodeError
            An element is NaN, infinite, or too large for the grid.
        ValueError
            The bucket had another length before.
        """
        owed = self._owed(gradient, rate, round.bucket)
        if not np.isfinite(owed).all():
            raise EncodeError(not_finite(gradient if not np.isfinite(gradient).all() else owed))
        elements = None if self._share == 1 else self._chosen(owed, round)
        place = slice(None) if elements is None else elements
        values = owed[place].copy()
        integers = None if self._grid is None else self._grid.integers(values)
        owed[place] -= values if integers is None or self._grid is None else self._grid.values(integers)
        before, self._held[round.bucket] = self._last.get(round.bucket), owed
        self._last[round.bucket] = Entries(elements, values if integers is None else integers)
        return Change(self._last[round.bucket], before)

    def _owed(self, gradient: Gradient, rate: np.float32, bucket: int) -> Gradient:
        """γ · gradient and what was held back, in a new array."""
        held = self._held.get(bucket)
        if held is not None and held.size != gradient.size:
            raise ValueError(
                f"bucket {bucket} has {gradient.size} elements and had {held.size}: a bucket with error "
                "feedback keeps its length"
            )
        with np.errstate(over="ignore"):
            owed: Gradient = gradient * rate
            if held is not None:
                owed += held
        return owed

    def _chosen(self, owed: Gradient, round: Round) -> NDArray[np.uint32]:
        """The largest elements of every tensor, in ascending order."""
        parts = [
            tensor.start + largest(owed[tensor.place], count_of(self._share, tensor.elements))
            for tensor in round.tensors_of(owed)
        ]
        return np.concatenate(parts).astype(np.uint32)

    def contribution(self, bucket: int, elements: int) -> Gradient:
        """What the worker sent last, as float32 values of all elements."""
        if bucket not in self._last:
            return np.zeros(elements, np.float32)
        found = self._last[bucket].dense(elements)
        return found if self._grid is None else self._grid.values(found)

    def state(self) -> State:
        """What is held back and what was sent last, by bucket."""
        state = {f"held/{bucket}": held.copy() for bucket, held in self._held.items()}
        for bucket, last in self._last.items():
            state |= entries_state(last, f"last/{bucket}")
        return state

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a state."""
        held = {name.split("/")[1]: array for name, array in state.items() if name.startswith("held/")}
        self._held = {int(bucket): np.array(own, np.float32) for bucket, own in held.items()}
        self._last = {int(bucket): entries_from(state, f"last/{bucket}") for bucket in held}


def entries_state(entries: Entries, name: str) -> State:
    """Entries as arrays whose names begin with this one."""
    state: State = {f"{name}/values": entries.values.copy()}
    return state if entries.elements is None else {**state, f"{name}/elements": entries.elements.copy()}


def entries_from(state: Mapping[str, NDArray[Any]], name: str) -> Entries:
    """Entries from arrays whose names begin with this one."""
    elements = state.get(f"{name}/elements")
    return Entries(None if elements is None else elements.copy(), state[f"{name}/values"].copy())


def encode_work(rule: UploadRule, gradient: Gradient, words_bytes: int) -> Work:
    """Work of one worker in one bucket before it sends: comparing gradients, and making an upload.

    A comparison reads two gradients. An upload reads the gradient and what was held back, writes their sum,
    reads it twice to select (as `topk`), and clears what is sent.
    """
    compared = 2 * gradient.nbytes if rule.has_compared else 0
    flops = 3 * gradient.size if rule.has_compared else 0
    launches = int(rule.has_compared) + int(rule.uploads)
    if not rule.uploads:
        return Work(compared, 0, flops, launches)
    written = gradient.nbytes + 2 * words_bytes
    return Work(compared + 4 * gradient.nbytes, written, flops + 2 * gradient.size, launches)
