"""Rows of layers, which BIRD keeps or drops as a whole, and kernels over them.

A row is what one output of a layer has: a convolution's weight (O, I, kh, kw) has O rows of I · kh · kw
elements, a linear map's (O, I) has O of I, an embedding has one for each entry. Vectors of the same layer
with as many elements as rows (a bias, a norm's parameters) ride along: element i goes with row i, under its
index. Any other tensor is one row: a vector of another length, a number, a gradient of unknown tensors.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import EncodeError
from netfold.homomorphic.kernels.compiled import kernel
from netfold.homomorphic.kernels.functions import exp, log
from netfold.homomorphic.message import Gradient
from netfold.homomorphic.round import Tensor

Norms = NDArray[np.float64]  # (rows,)
Rows = NDArray[np.int64]  # ascending
Bits = NDArray[np.uint32]  # bit 31 of word 0 is the first: in big-endian bytes, MSB first

_LANES = 64
_LONG = 128  # elements of a row that are summed in lanes; shorter rows one after the other


class Rider(NamedTuple):
    """A vector that rides along."""

    tensor: int  # its place among the bucket's tensors
    start: int  # offset in the bucket, elements


class Group(NamedTuple):
    """Rows of a layer, and what rides along."""

    name: str  # of the tensor with the rows
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
        own = slice(self.start, self.start + self.rows * self.row_elements), self.row_elements
        return own, *((slice(rider.start, rider.start + self.rows), 1) for rider in self.riders)


@lru_cache(maxsize=256)
def groups_of(tensors: tuple[Tensor, ...]) -> tuple[Group, ...]:
    """The rows of a bucket's tensors, in the order of the tensors that have them.

    A tensor has rows if it has two dimensions or more. A vector rides with the first such tensor of its layer
    that has as many rows as the vector has elements.
    """
    carriers: dict[tuple[str, int], int] = {}
    for place, tensor in enumerate(tensors):
        if len(tensor.shape) > 1 and tensor.layer:
            carriers.setdefault((tensor.layer, tensor.shape[0]), place)
    riders: dict[int, tuple[Rider, ...]] = {}
    own: list[int] = []
    for place, tensor in enumerate(tensors):
        carrier = carriers.get((tensor.layer, tensor.elements)) if len(tensor.shape) == 1 else None
        if carrier is None:
            own.append(place)
        else:
            riders[carrier] = (*riders.get(carrier, ()), Rider(place, tensor.start))
    return tuple(_group(place, tensors[place], riders.get(place, ())) for place in own)


def _group(place: int, tensor: Tensor, riders: tuple[Rider, ...]) -> Group:
    rows = tensor.shape[0] if len(tensor.shape) > 1 else min(1, tensor.elements)
    return Group(tensor.name, place, tensor.start, rows, tensor.elements // max(1, rows), riders)


def norms_of(gradient: Gradient, group: Group, kind: str) -> Norms:
    """The norm of every row, without what rides along: `kind` is l1 or l2.

    Raises
    ------
    EncodeError
        An element of the group is NaN or infinite.
    """
    norms = np.empty(group.rows, np.float64)
    (place, row_elements), *riding = group.parts()
    lanes = np.empty(_LANES, np.float64)
    (_sum_magnitudes if kind == "l1" else _sum_squares)(gradient[place], row_elements, lanes, norms)
    is_finite = np.isfinite(norms).all() and all(np.isfinite(gradient[part]).all() for part, _ in riding)
    if not is_finite:
        raise EncodeError(not_finite(gradient, group))
    return norms if kind == "l1" else np.sqrt(norms, out=norms)


def not_finite(gradient: Gradient, group: Group) -> str:
    """Error text for the first element of a group that is NaN or infinite."""
    places = [place.start + np.flatnonzero(~np.isfinite(gradient[place])) for place, _ in group.parts()]
    index = int(np.concatenate(places).min())
    return (
        f"gradient[{index}] of {group.name or 'the bucket'} is {gradient[index]}: its row has no norm; "
        "lower the learning rate, or skip such steps"
    )


@kernel
def _sum_magnitudes(values: Gradient, row_elements: int, lanes: Norms, norms: Norms) -> None:
    """Write Σ|x| of every row. Long rows are summed in lanes, which compilers can add at once."""
    for row in range(norms.size):
        own = values[row * row_elements : (row + 1) * row_elements]
        total, done = 0.0, 0
        if own.size >= _LONG:
            for i in range(lanes.size):
                lanes[i] = 0.0
            done = own.size // _LANES * _LANES
            for block in range(own.size // _LANES):
                part = own[block * _LANES : block * _LANES + _LANES]
                for i in range(_LANES):
                    lanes[i] += abs(part[i])
            for i in range(lanes.size):
                total += lanes[i]
        rest = own[done:]
        for i in range(rest.size):
            total += abs(rest[i])
        norms[row] = total


@kernel
def _sum_squares(values: Gradient, row_elements: int, lanes: Norms, norms: Norms) -> None:
    """Write Σx² of every row, as `_sum_magnitudes`."""
    for row in range(norms.size):
        own = values[row * row_elements : (row + 1) * row_elements]
        total, done = 0.0, 0
        if own.size >= _LONG:
            for i in range(lanes.size):
                lanes[i] = 0.0
            done = own.size // _LANES * _LANES
            for block in range(own.size // _LANES):
                part = own[block * _LANES : block * _LANES + _LANES]
                for i in range(_LANES):
                    lanes[i] += np.float64(part[i]) * np.float64(part[i])
            for i in range(lanes.size):
                total += lanes[i]
        rest = own[done:]
        for i in range(rest.size):
            total += np.float64(rest[i]) * np.float64(rest[i])
        norms[row] = total


@kernel
def power_sums(values: Gradient, row_elements: int, largest: float, gamma: float, sums: Norms) -> None:
    """Write Σ(|x| / largest)^gamma of every row; zeros add nothing."""
    for row in range(sums.size):
        own = values[row * row_elements : (row + 1) * row_elements]
        total = 0.0
        for i in range(own.size):
            if own[i] != 0:
                total += exp(gamma * log(np.float64(abs(own[i])) / largest))
        sums[row] = total


@kernel
def write_signs(values: Gradient, row_elements: int, rows: Rows, bits: Bits, position: int) -> int:
    """Append the signs of some rows to `bits`, which are zeros from `position` on; return where they end.

    A bit is 1 if the value is below zero; −0.0 is not.
    """
    for r in range(rows.size):
        own = values[rows[r] * row_elements : (rows[r] + 1) * row_elements]
        head = min(own.size, (32 - position % 32) % 32)
        for i in range(head):
            bits[position // 32] |= np.uint32(own[i] < 0) << np.uint32(31 - position % 32)
            position += 1
        body = own[head:]
        words = bits[position // 32 : position // 32 + body.size // 32]
        for w in range(words.size):
            some = body[32 * w : 32 * w + 32]
            word = 0
            for j in range(some.size):
                word |= int(some[j] < 0) << (31 - j)
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
        own = total[rows[r] * row_elements : (rows[r] + 1) * row_elements]
        scale = scales[r]
        for i in range(own.size):
            is_negative = (bits[position // 32] >> np.uint32(31 - position % 32)) & np.uint32(1)
            own[i] += -scale if is_negative else scale
            position += 1
    return position
