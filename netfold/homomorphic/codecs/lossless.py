"""Codec `lossless`: an index, and a peelable sketch of the values by ADD.

After Li et al., "Accelerating distributed deep learning using lossless homomorphic compression" (arXiv
2402.07529). The workers agree on the union support, its members. Each worker adds its values into tables of
counters, each value into three counters. The merged tables are peeled: a counter with a single member holds
that member's sum, which is then subtracted from its two other counters (see `peeling`).

The codec has three settings. They differ in the places of counters, in their contents, and in what they do
with members that do not peel:

* `published`: the authors' released CUDA code (lihy0529/lossless_homomorphic_compression), with its
  weaknesses; see `released`.
* `rotated`: its hashing with the smallest repair. Blocks of 1024 elements still share their rows, but a
  second hash rotates each block in its row, so that no column of counters is overloaded. The bucket has one
  table with three segments, sized for the union.
* `repaired`: the same in blocks of a few elements, with a table for each tile of the bucket that fits a
  core's cache.

Both repairs key their hashes by the round, and their numbers are integers (or as `values` says). A tile that
does not peel, by chance or because merged words are damaged, is known to have failed: its members are sent
again, packed. Nothing is estimated. Integers are modulo 2**32, so partial sums may overflow. Adders that wrap
lose nothing. An adder that saturates damages its tile, which then fails.

`staged` sends the index first and sizes the tables for the union. `concurrent` sends both at once: sizes and
numbers come from the bucket's last rounds (see `sketch`), and tiles that differ from the forecast are sent
again, packed. A bucket's first round is staged.

All workers must receive the same merged words, as from any all-reduce: each decides alone on a redo.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from numpy.typing import NDArray

from netfold.homomorphic import released
from netfold.homomorphic.bounds import ErrorBound
from netfold.homomorphic.codec import (
    Codec,
    CodecRefusal,
    Decoded,
    Encoder,
    Exchange,
    Origin,
    Promise,
    State,
    part_of,
    prefixed,
    register,
)
from netfold.homomorphic.formats import NumberFormat, Values, number_format, number_merges, number_promise
from netfold.homomorphic.index import (
    WORD_ELEMENTS,
    IndexKind,
    IndexMemory,
    check_block_elements,
    index_merges,
)
from netfold.homomorphic.message import Gradient, Merge, Round
from netfold.homomorphic.released import IndexBits
from netfold.homomorphic.sketch import LOAD_MAX, REPAIRED_TILING, ROTATED_TILING, USUAL_LOAD, History, Tiled

WRAP_REASON = "saturation is not invertible, so peeling can fail where a counter overflows"
RATIO = 10.0  # elements per counter of the release's benchmark

Setting = Literal["repaired", "rotated", "published"]
Schedule = Literal["staged", "concurrent"]


@register
@dataclass(frozen=True)
class Lossless(Codec):
    """Sparse gradients as an index and an exactly decodable sketch.

    setting: repaired, rotated (the released hashing with the least repair), or published (the released code,
        which estimates what it cannot decode).
    schedule: staged (index first, tables sized from it) or concurrent (both at once, by a forecast).
    values: how a value becomes words: block_exponent (one integer, as fixed_point), float32, exact (several
        integers, which give the true sum); left out, block_exponent, and float32 if published.
    index: how workers send which elements are non-zero: flat (a bit each), two_level (a bit for each 64, then
        the bits of those), bloom (a filter; smaller below a density of 7 %).
    load: members per counter; less is larger and fails less often. From 0.05 to 0.81.
    ratio: published: elements per counter, at any density; left out, 10.
    index_bits: published: bits of the index per element, 4 (counted by ADD, up to 15 workers) or 1 (united by
        OR); left out, 4.
    block_elements: elements that share an exponent; a power of two from 64 to 65536.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}
    kind: ClassVar[str] = "lossless"
    origin: ClassVar[Origin] = Origin("published", "Li et al., arXiv 2402.07529")
    remedy: ClassVar[str] = "setting: repaired, or a lower ratio; for tiny gradients values: exact"

    setting: Setting = "repaired"
    schedule: Schedule = "staged"
    values: Values | None = None
    index: IndexKind = "flat"
    load: float = USUAL_LOAD
    ratio: float | None = None
    index_bits: IndexBits | None = None
    block_elements: int = 4096

    def __post_init__(self) -> None:
        if not 0.05 <= self.load <= LOAD_MAX:
            raise ValueError(
                f"load is {self.load}: members per counter must be between 0.05 and {LOAD_MAX}; "
                "above 0.818 a sketch with three hashes cannot be peeled, 0.77 is a good choice"
            )
        check_block_elements(self.block_elements, WORD_ELEMENTS)
        if self.setting == "published":
            self._check_published()
            return
        for name in ("ratio", "index_bits"):
            if getattr(self, name) is not None:
                raise ValueError(
                    f"{name} belongs to setting published, found setting {self.setting}; remove it"
                )

    def _check_published(self) -> None:
        """Reject options that the released code does not have."""
        if self.ratio is not None and not 1 <= self.ratio < float("inf"):
            raise ValueError(f"ratio is {self.ratio}: elements per counter must be 1 or more, 10 is usual")
        for name, only in (("schedule", "staged"), ("index", "flat")):
            if getattr(self, name) != only:
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}: setting published can only be {only!r}; "
                    "remove it, or use setting repaired"
                )
        if self.values == "exact":
            raise ValueError(
                "values is 'exact': setting published has counters of one word; "
                "use float32 or block_exponent, or setting repaired"
            )

    @property
    def number_values(self) -> Values:
        """The values, or the setting's default."""
        return self.values or ("float32" if self.setting == "published" else "block_exponent")

    @property
    def promise(self) -> Promise:
        """The promise of the numbers."""
        return number_promise(self.number_values)

    @property
    def wrap_reason(self) -> str:
        """Why a sketch wants adders that wrap."""
        return WRAP_REASON

    @property
    def merges(self) -> frozenset[Merge]:
        """The merges of the index and of the numbers."""
        numbers = number_merges(self.number_values)
        if self.setting == "published":
            return numbers | {Merge.OR if self.index_bits == 1 else Merge.ADD}
        return index_merges(self.index) | numbers

    def refusal(self, workers: int, overflow: str) -> CodecRefusal | None:
        """Reject workers that the cells of the published index cannot count."""
        counts_cells = self.setting == "published" and self.index_bits != 1
        return released.cells_refusal(workers, overflow) if counts_cells else None

    def worker(self, rank: int, workers: int, seed: int) -> LosslessEncoder:
        """Encoder of one worker; it records the last rounds."""
        return LosslessEncoder(self)

    def error_bound(self, gradients: Sequence[Gradient]) -> ErrorBound:
        """The bound of the numbers, if they are integers: a sketch adds no error to them.

        It does to float32: see `released.FloatSketchBound`.
        """
        if self.number_values == "float32":
            load = 1.0 if self.setting == "published" else self.load
            return released.float_error_bound(gradients, load)
        numbers = number_format(self.number_values, self.block_elements)
        return numbers.error_bound(gradients, self.schedule == "concurrent")


@dataclass(frozen=True)
class LosslessEncoder(Encoder):
    """One worker's side."""

    codec: Lossless
    memory: IndexMemory = field(default_factory=IndexMemory)
    history: History = field(default_factory=History)

    @property
    def numbers(self) -> NumberFormat[Any]:
        """The number format."""
        return number_format(self.codec.number_values, self.codec.block_elements)

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Agree on the members, sum and peel the sketch; the setting decides on members that do not peel."""
        codec, numbers = self.codec, self.numbers
        if codec.setting == "published":
            options = released.Options(codec.ratio or RATIO, codec.index_bits or 4)
            return Decoded((yield from released.exchange(gradient, numbers, options, round)), gradient)
        tiling = ROTATED_TILING if codec.setting == "rotated" else REPAIRED_TILING
        tiled = Tiled(tiling, codec.load, numbers, codec.index, self.memory)
        is_concurrent = codec.schedule == "concurrent"
        forecast = self.history.forecast(round, gradient.size, numbers) if is_concurrent else None
        if forecast is None:
            decoded, seen = yield from tiled.exchange_staged(gradient, round)
        else:
            decoded, seen = yield from tiled.exchange_concurrent(gradient, round, forecast)
        if is_concurrent:
            self.history.add(round, gradient.size, seen)
        return Decoded(decoded, gradient)

    def state(self) -> State:
        """The sizes of unions and the last rounds."""
        return prefixed("memory", self.memory.state()) | prefixed("history", self.history.state(self.numbers))

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a state."""
        self.memory.restore(part_of(state, "memory"))
        self.history.restore(part_of(state, "history"), self.numbers)
