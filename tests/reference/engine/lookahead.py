"""OmniReduce's streaming of blocks with look-ahead (Fei et al., SIGCOMM 2021), with sets and loops.

Columns advance together: in every operation each column that has not ended sends its current block with the
number of this worker's next live block of the column; the smallest of those is the column's next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Operation(NamedTuple):
    blocks: list[int]  # that every worker sends, in ascending order
    following: list[list[int]]  # by worker: the next live block of each one's column, or the number of blocks


def live_blocks(values: Sequence[float], block_elements: int) -> set[int]:
    return {element // block_elements for element, value in enumerate(values) if value != 0}


def operations(gradients: Sequence[Sequence[float]], columns: int, block_elements: int) -> list[Operation]:
    """What is sent until all columns have ended."""
    end = -(-len(gradients[0]) // block_elements)
    live = [live_blocks(values, block_elements) for values in gradients]
    current = list(range(min(columns, end)))
    columns = len(current)
    done = []
    while current:
        following = [
            [
                min((b for b in own if b > block and b % columns == block % columns), default=end)
                for block in current
            ]
            for own in live
        ]
        done.append(Operation(current, following))
        smallest = [min(column) for column in zip(*following, strict=True)]
        current = sorted(block for block in smallest if block < end)
    return done
