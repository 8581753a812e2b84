"""The forecast of concurrent lossless with block_exponent for a bucket's next round, tile by tile.

Written from its description: room for the largest count of each block in the last four rounds, five percent
and three standard deviations more; an exponent one above the largest, the larger neighbour's where a block
was empty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

COUNTERS_EXTRA = 32
LOAD_MAX = 0.81
SPARE_BITS = 3


class Seen(NamedTuple):
    """One round, block by block."""

    members: list[int]
    exponents: list[int | None]  # None: all zero


class Sizes(NamedTuple):
    elements: int
    block_elements: int
    tile_members: int
    load: float


def seen(gradients: Sequence[Sequence[float]], block_elements: int) -> Seen:
    """Count members and find exponents, for magnitudes far from the ends of float32."""
    members, exponents = [], []
    for first in range(0, len(gradients[0]), block_elements):
        columns = list(zip(*[one[first : first + block_elements] for one in gradients], strict=True))
        members.append(sum(any(column) for column in columns))
        largest = max(abs(value) for column in columns for value in column)
        exponents.append(math.frexp(largest)[1] if largest else None)
    return Seen(members, exponents)


def missed(history: Sequence[Seen], actual: Seen, sizes: Sizes) -> tuple[int, int]:
    """How many tiles exceed their forecast, and how many have members."""
    last = history[-4:]
    room = [_room(max(counts)) for counts in zip(*[one.members for one in last], strict=True)]
    expected = _exponents([one.exponents for one in last])
    blocks = len(room)
    tile_blocks = max(1, min(blocks // (1 + sum(room) // sizes.tile_members), 2**22 // sizes.block_elements))
    outgrown = populated = 0
    for first in range(0, blocks, tile_blocks):
        tile = range(first, min(first + tile_blocks, blocks))
        members = sum(actual.members[block] for block in tile)
        populated += members > 0
        misfits = any(
            actual.members[block] and not _fits(expected[block], actual.exponents[block]) for block in tile
        )
        outgrown += misfits or members > _capacity(tile, sum(room[block] for block in tile), sizes)
    return outgrown, populated


def _room(members: int) -> int:
    return math.ceil(1.05 * members + 3 * math.sqrt(members))


def _capacity(tile: range, room: int, sizes: Sizes) -> float:
    """Members that a tile's table always holds; no limit for a tile that is sent whole."""
    if room == 0:
        return 0
    rows = math.ceil((math.ceil(room / sizes.load) + COUNTERS_EXTRA) / 3)
    end = min(tile.stop * sizes.block_elements, sizes.elements)
    is_whole = 3 * rows >= end - tile.start * sizes.block_elements
    return math.inf if is_whole else math.floor(LOAD_MAX * 3 * rows)


def _exponents(rounds: Sequence[Sequence[int | None]]) -> list[int | None]:
    largest = [
        max((one for one in block if one is not None), default=None) for block in zip(*rounds, strict=True)
    ]
    known = [block for block, exponent in enumerate(largest) if exponent is not None]
    expected: list[int | None] = []
    for block, exponent in enumerate(largest):
        before = [largest[one] for one in known if one <= block][-1:]
        after = [largest[one] for one in known if one >= block][:1]
        neighbours = [one for one in (*before, *after) if one is not None]
        guess = max(neighbours, default=None) if exponent is None else exponent
        expected.append(None if guess is None else guess + 1)
    return expected


def _fits(expected: int | None, actual: int | None) -> bool:
    if actual is None:
        return True
    return expected is not None and 0 <= expected - actual <= SPARE_BITS
