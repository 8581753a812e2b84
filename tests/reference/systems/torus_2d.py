"""The schedule of the 2-D torus, part by part: who sends what to whom, and whose words it holds.

Written from the definition: reduce-scatter in the rows, reduce-scatter in the columns, all-gather in the
columns, all-gather in the rows; every ring passes things on to its next member, and what a member is to own
starts at the member after it. Parts are shares of the message, as fractions.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np


class Part(NamedTuple):
    """What the workers of one column reduce to one of them."""

    start: Fraction
    end: Fraction
    number: int  # in its column: the row that owns it


class Transfer(NamedTuple):
    """One part on its way from a worker to the next."""

    stage: int  # 0 … 3
    step: int  # of the stage, from 0
    part: int
    sender: int
    receiver: int
    workers: int  # whose words it holds


class Merge(NamedTuple):
    """What arrives, merged with what the receiver has."""

    arriving: Any  # a rank, or a merge
    own: Any
    hop: int  # of its ring, from 1


def ranks(lengths: Sequence[int]) -> list[list[int]]:
    numbers = iter(range(sum(lengths)))
    return [[next(numbers) for _ in range(length)] for length in lengths]


def parts_of(lengths: Sequence[int], host: bool = False) -> list[Part]:
    """The parts of a message of words, or of one that its codec cuts into equal parts (`host`)."""
    if host:
        cuts = [Fraction(number, max(lengths)) for number in range(max(lengths) + 1)]
    else:
        cuts = sorted({Fraction(number, length) for length in lengths for number in range(length + 1)})
    rows, found = len(lengths), []
    for start, end in pairwise(cuts):
        for row in range(rows):
            share = (end - start) / rows
            found.append(Part(start + row * share, start + (row + 1) * share, row))
    return found


def owner(part: Part, lengths: Sequence[int], row: int) -> int:
    """The position in a row whose group the part begins in; parts of one segment begin in the same."""
    segment = part.start - part.number * (part.end - part.start)
    (position,) = (p for p in range(lengths[row]) if p <= segment * lengths[row] < p + 1)
    return position


def ring_from(members: Sequence[int], start: int) -> list[int]:
    """All members, from one on."""
    return [members[(start + step) % len(members)] for step in range(len(members))]


def chains(part: Part, lengths: Sequence[int]) -> tuple[list[list[int]], list[int]]:
    """The workers that a part passes in each row, the last of which owns it; and the rows that it passes."""
    rows = ranks(lengths)
    in_rows = [ring_from(members, owner(part, lengths, row) + 1) for row, members in enumerate(rows)]
    return in_rows, ring_from(range(len(lengths)), part.number + 1)


def transfers(lengths: Sequence[int], host: bool = False) -> list[Transfer]:
    """All transfers, stage by stage and step by step; those of one step are at the same time."""
    found, everyone = [], sum(lengths)
    for number, part in enumerate(parts_of(lengths, host)):
        in_rows, down = chains(part, lengths)
        for chain in in_rows:
            for step, (sender, receiver) in enumerate(pairwise(chain)):
                found.append(Transfer(0, step, number, sender, receiver, step + 1))
        owners = [in_rows[row][-1] for row in down]
        for step in range(len(down) - 1):
            held = sum(lengths[row] for row in down[: step + 1])
            found.append(Transfer(1, step, number, owners[step], owners[step + 1], held))
        around = ring_from(owners, len(owners) - 1)  # from the owner of the whole part on
        backs = [ring_from(chain, len(chain) - 1) for chain in in_rows]
        for stage, ring in [(2, around), *((3, back) for back in backs)]:
            for step, (sender, receiver) in enumerate(pairwise(ring)):
                found.append(Transfer(stage, step, number, sender, receiver, everyone))
    return sorted(found)


def tree(part: Part, lengths: Sequence[int]) -> Any:
    """How a part is merged: a rank, or a `Merge`."""
    in_rows, down = chains(part, lengths)
    return _chained([_chained(in_rows[row]) for row in down])


def _chained(operands: Sequence[Any]) -> Any:
    held = operands[0]
    for hop, own in enumerate(operands[1:], start=1):
        held = Merge(held, own, hop)
    return held


def first(merged: Any) -> int:
    return first(merged.arriving) if isinstance(merged, Merge) else int(merged)


def held_by(merged: Any) -> int:
    return held_by(merged.arriving) + held_by(merged.own) if isinstance(merged, Merge) else 1


def by_counts(merge: Merge) -> tuple[int, int]:
    """The weights of a merge: the workers of both operands."""
    return held_by(merge.arriving), held_by(merge.own)


def float_sums(words: Sequence[Any], lengths: Sequence[int]) -> Any:
    """The float32 sums of all workers' words `(size,)`, added in the order of the schedule."""
    size = len(words[0])
    found = np.empty(size, np.float32)
    parts = parts_of(lengths)
    for number, part in enumerate(parts):
        segment = part.start - part.number * (part.end - part.start)
        end = segment + len(lengths) * (part.end - part.start)
        low, high = int(segment * size), int(end * size)  # rounded down
        bounds = [low + (high - low) * more // len(lengths) for more in (part.number, part.number + 1)]
        plan = tree(parts[number], lengths)
        for element in range(*bounds):
            found[element] = _added(plan, words, element)
    return found


def _added(merged: Any, words: Sequence[Any], element: int) -> np.float32:
    if not isinstance(merged, Merge):
        return np.float32(words[merged][element])
    return np.float32(_added(merged.arriving, words, element) + _added(merged.own, words, element))
