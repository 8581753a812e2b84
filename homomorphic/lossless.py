"""Lossless homomorphic compression: an index by OR, then a peelable sketch of the values by ADD.

After Li et al., "Accelerating distributed deep learning using lossless homomorphic compression" (arXiv
2402.07529). A round is one network operation for index and block exponents, and one for the values:

1. Each worker sends a bit per element (is it non-zero?) and an exponent per block (see `fixed_point`). The
   union of the bits tells all workers which elements are members, the largest exponents how they are
   quantised.
2. The members of a tile share a table of counters, about 1.3 per member; every worker sends the table of its
   own integers, and the merged table peels into the exact integer sums (see `peeling`). Where a table would
   be no smaller than the tile itself, the tile is sent dense.
3. A tile that does not peel, by bad luck or because the merged words are damaged, is known to have failed.
   Its members are sent once more, packed. Nothing is ever estimated.

It differs from the authors' released CUDA code (lihy0529/lossless_homomorphic_compression) on purpose:
integers modulo 2**32 and not float32 (peeling floats is not exact); hashes per element and round, not per
block of 1024 (structured sparsity overloads shared rows); tables sized from the union, not by a fixed ratio;
a redo, not a median estimate; and the values' lowest bit is theirs.

All workers must receive the same merged words, as they do from any all-reduce: each decides on a redo alone.
Counters may leave int32 where they are merged. Adders that wrap lose nothing; one that saturates damages its
tile, which then fails and is sent again.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from homomorphic import peeling
from homomorphic.codec import (
    Exchange,
    Gradient,
    Merge,
    Merged,
    Message,
    Round,
    Work,
    register,
)
from homomorphic.fixed_point import error_bound
from homomorphic.keyed import mix_plain
from homomorphic.membership import Agreement, agree, check_block_elements
from homomorphic.peeling import Layout

TILE_MEMBERS = (
    32_768  # counters, degrees and members fit a core's cache, and few tiles fail (about 6 / members)
)
EXTRA_COUNTERS = 32  # what small tables need on top of the load
LOAD_MAX = 0.81  # three-hash peeling fails above 0.818 members per counter

_COUNTER_BYTES = 12  # value, degree, member
_HASHES = 3


@register
@dataclass(frozen=True)
class Lossless:
    """Sparse gradients as an index and an exactly decodable sketch.

    load: members per counter; less is larger and fails less often. From 0.05 to 0.81.
    block_elements: elements that share an exponent; a power of two from 32 to 65536.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}
    kind: ClassVar[str] = "lossless"
    exact: ClassVar[bool] = True
    merges: ClassVar[frozenset[Merge]] = frozenset({Merge.OR, Merge.MAX, Merge.ADD})
    is_linear: ClassVar[bool] = False  # what the index says must hold for the sketch it goes with

    load: float = 0.77
    block_elements: int = 4096

    def __post_init__(self) -> None:
        if not 0.05 <= self.load <= LOAD_MAX:
            raise ValueError(
                f"load is {self.load}: members per counter must lie between 0.05 and {LOAD_MAX}; "
                "above 0.818 a sketch with three hashes cannot be peeled, 0.77 is a good choice"
            )
        check_block_elements(self.block_elements, least=32)

    def worker(self, rank: int, workers: int, seed: int) -> LosslessEncoder:
        """Encoder of one worker; it keeps no state."""
        return LosslessEncoder(self)

    def error_bound(self, gradients: Sequence[Gradient]) -> NDArray[np.float64]:
        """That of fixed point with the same blocks: the sketch adds nothing to it."""
        return error_bound(gradients, self.block_elements)


@dataclass(frozen=True)
class LosslessEncoder:
    """One worker's side."""

    codec: Lossless

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Agree on members and exponents, sum the sketch, peel it, redo what failed."""
        membership = yield from agree(gradient, self.codec.block_elements, round)
        layout = _layout(self.codec, membership, gradient.size, round)
        decoded = np.zeros(gradient.size, np.float32)
        if layout.offsets[-1]:
            failed = yield from _exchange_values(layout, gradient, membership.own, decoded)
            if failed.size:
                yield from _exchange_failed(layout, failed, gradient, decoded)
        return decoded


def _exchange_values(
    layout: Layout, gradient: Gradient, index: NDArray[np.uint32], decoded: Gradient
) -> Generator[tuple[Message, ...], tuple[Merged, ...], NDArray[np.int64]]:
    """Sum and peel the sketch into `decoded`; return the tiles that failed."""
    words = np.zeros(layout.offsets[-1], np.int32)
    peeling.encode(layout, gradient, index, words)
    nonzeros = int(np.bitwise_count(index).sum(dtype=np.int64))
    encode_bytes = 4 * _HASHES * nonzeros
    members = int(layout.members[layout.segments > 0].sum())
    # Each member enters degree and member of its counters, and later leaves them and the value.
    peel_bytes = (_COUNTER_BYTES + 8) * _HASHES * members
    (merged,) = yield (
        Message(
            words,
            Merge.ADD,
            "values",
            Work(index.nbytes + 4 * nonzeros + encode_bytes, words.nbytes + encode_bytes),
            decode_work=Work(
                layout.union.nbytes + words.nbytes + peel_bytes,
                decoded.nbytes + words.nbytes + peel_bytes,
            ),
        ),
    )
    failed = np.zeros(layout.segments.size, np.bool_)
    peeling.decode(layout, merged.words, decoded, failed)
    return np.flatnonzero(failed)


def _exchange_failed(
    layout: Layout, failed: NDArray[np.int64], gradient: Gradient, decoded: Gradient
) -> Generator[tuple[Message, ...], tuple[Merged, ...], None]:
    """Sum the members of failed tiles one by one into `decoded`."""
    words = np.empty(layout.members[failed].sum(), np.int32)
    peeling.pack(layout, failed, gradient, words)
    work = Work(words.nbytes, words.nbytes)
    (merged,) = yield (Message(words, Merge.ADD, "redo", work, decode_work=work),)
    peeling.unpack(layout, failed, merged.words, decoded)


def segment_counters(members: NDArray[np.int64], load: float) -> NDArray[np.int64]:
    """Counters in each of the three segments of tables for this many members."""
    counters = np.ceil(members / load) + EXTRA_COUNTERS
    return np.ceil(counters / _HASHES).astype(np.int64)


def _layout(codec: Lossless, membership: Agreement, elements: int, round: Round) -> Layout:
    """Cut the elements into tiles of about `TILE_MEMBERS` members and size each tile's table."""
    members_of_word = np.bitwise_count(membership.union)
    tiles_wanted = 1 + int(members_of_word.sum(dtype=np.int64)) // TILE_MEMBERS
    tile_elements = max(1, -(-membership.scales.size // tiles_wanted)) * codec.block_elements
    tiles = -(-elements // tile_elements)
    members = np.add.reduceat(members_of_word, np.arange(tiles) * (tile_elements // 32), dtype=np.int64)
    sizes = np.minimum(tile_elements, elements - np.arange(tiles) * tile_elements)
    segments = segment_counters(members, codec.load)
    segments[(_HASHES * segments >= sizes) | (members == 0)] = 0
    words = np.where(segments > 0, _HASHES * segments, np.where(members > 0, sizes, 0))
    return Layout(
        union=membership.union,
        scales=membership.scales,
        block_elements=codec.block_elements,
        tile_elements=tile_elements,
        members=members,
        segments=segments,
        offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(words)]),
        key=np.uint64(mix_plain(round.seed, round.step, round.bucket)),
    )
