"""Speed of codecs on 100 MB of gradient, relative to copying it, beside sorting and general compression.

Every load passes over the same buffers, already touched, on one thread; those that can be divided also on
two. A rate is in bytes of the gradient, or of the merged words, regardless of the bytes that the load moves.
Compare the ratio to `numpy.copyto`, which is measured in the same run. Loads that only read are also compared
with reading: the bytes that they read, per second, over those of adding up an array.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import lz4.frame
import numpy as np
import torch
import zstandard
from rich.table import Table

from netfold.homomorphic import merge
from netfold.homomorphic.codecs.bird.published import Bird
from netfold.homomorphic.codecs.signs.bits import pack_owed, words_of
from netfold.homomorphic.index import bits, bloom, members
from netfold.homomorphic.kernels.compiled import kernel
from netfold.homomorphic.numbers.block_exponent import AgreedExponents
from netfold.homomorphic.numbers.compact import Compact, all_of
from netfold.homomorphic.numbers.exponents import announced_exponents
from netfold.homomorphic.round import Round, Tensor
from netfold.homomorphic.sketch import tables
from netfold.homomorphic.sketch.forecast import Seen
from netfold.homomorphic.sketch.sketch import REPAIRED_TILING
from netfold.homomorphic.sketch.tiled import layout_of
from tests.bench import sketches

ELEMENTS = 25_000_000  # 100 MB of float32
DENSITIES = (0.01, 0.05)
BLOCK_ELEMENTS = 4096
REPEATS = 5
TOP_SHARE = 0.01
ROW_ELEMENTS = 2500  # of a layer of BIRD, as long as the rows of a ResNet-18 are on average
ROWS_SHARE = 0.1
LOAD = 0.77

Work = Callable[[int, int], object]


class Load(NamedTuple):
    """A pass over the elements from `begin` to `end` of a gradient."""

    name: str
    work: Work
    is_divisible: bool = True  # into ranges of whole blocks, for threads
    compressed_bytes: int | None = None  # of the whole gradient
    read_bytes: int = 0  # of an element, of a load that reads and writes next to nothing


class Sparse:
    """A gradient of some density, and every buffer its loads need, already touched."""

    def __init__(self, elements: int, density: float) -> None:
        random = np.random.default_rng(1)
        chosen = random.random(elements, np.float32) < density
        self.gradient = random.standard_normal(elements, np.float32) * chosen
        self.index = np.zeros(-(-elements // 64), np.uint64)
        self.narrow = self.index.view(np.uint32)[: -(-elements // 32)]
        bits.write_index(self.gradient, self.narrow)
        exponents = announced_exponents(all_of(self.gradient, BLOCK_ELEMENTS), 1)
        self.placed = members.word_layout(
            members.members_of(self.index, BLOCK_ELEMENTS), AgreedExponents(exponents, 1)
        )
        self.words = np.ones(self.placed.offsets[-1], np.int32)
        self.values = np.ones(self.words.size, np.float32)
        self.decoded = np.ones(elements, np.float32)
        self._make_sketch()
        self.live = np.zeros(-(-self.index.size // 64), np.uint64)
        self.live_words = np.ones(np.count_nonzero(self.index), np.uint64)
        self.filter_size = bloom.design_filter(elements, self.words.size)
        assert self.filter_size is not None, f"a density of {density} is too high for a filter"
        self.filter = np.ones(self.filter_size.words, np.uint64)
        self.named = np.ones_like(self.index)

    def scan(self, begin: int, end: int) -> None:
        """Write the index."""
        bits.write_index(self.gradient[begin:end], self.narrow[begin // 32 : -(-end // 32)])

    def _make_sketch(self) -> None:
        """Make the tables of the members, and their buffers."""
        room = np.diff(self.placed.members.starts)
        seen = Seen(room, self.placed.agreed)
        layout = layout_of(REPAIRED_TILING, LOAD, self.gradient.size, seen, BLOCK_ELEMENTS)
        starts = np.append(self.placed.offsets[: -1 : layout.tile_blocks], self.placed.offsets[-1])
        words = np.cumsum(np.append(0, 3 * REPAIRED_TILING.lanes * layout.rows))
        self.tables = tables.Tables(
            REPAIRED_TILING.setting,
            REPAIRED_TILING.lanes,
            layout.tile_elements,
            layout.rows,
            words,
            np.uint64(1),
        )
        self.counters = np.ones(words[-1], np.int32)
        self.scratches = [tables.scratch_for(self.tables, starts) for _ in range(2)]
        self.own = tables.TileWords(self.index, starts, self.words)
        self.is_failed = np.zeros(layout.rows.size, np.bool_)

    def exponents(self, begin: int, end: int) -> None:
        """Find every block's exponent, among all values."""
        announced_exponents(all_of(self.gradient[begin:end], BLOCK_ELEMENTS), 1)

    def pack(self, begin: int, end: int) -> None:
        """Write the index, and the integers of its members."""
        self.scan(begin, end)
        index, span, blocks = self._part(begin, end)
        members.gather(index, self.gradient[begin:end], self.values[span])
        starts = self.placed.members.starts[blocks.start : blocks.stop + 1]
        self.placed.agreed.part(blocks.start, blocks.stop).encode(
            self.values[span], starts, 1, self.words[span]
        )

    def expand(self, begin: int, end: int) -> None:
        """Put the integers back where they belong, and zeros elsewhere."""
        index, span, blocks = self._part(begin, end)
        starts = self.placed.members.starts[blocks.start : blocks.stop + 1]
        self.placed.agreed.part(blocks.start, blocks.stop).decode(
            self.words[span], starts, 1, self.values[span]
        )
        members.scatter(index, self.values[span], self.decoded[begin:end], True)

    def sketch(self, begin: int, end: int) -> None:
        """Write the index, the exponents, and the tables of its members."""
        self.pack(begin, end)
        blocks = self._part(begin, end)[2]
        starts = self.placed.members.starts[blocks.start : blocks.stop + 1]
        announced_exponents(Compact(self.values, starts, self.gradient), 1)
        tables.add(self.tables, self._tiles(begin, end), self.own, self.counters, self._scratch(begin))

    def peel(self, begin: int, end: int) -> None:
        """Recover the members' integers from the tables."""
        tiles = self._tiles(begin, end)
        tables.peel(self.tables, tiles, self.own, self.counters, self.is_failed, self._scratch(begin))

    def _tiles(self, begin: int, end: int) -> np.ndarray:
        """The tiles that begin in a range of elements."""
        size = self.tables.tile_elements
        return np.arange(-(-begin // size), -(-end // size))

    def _scratch(self, begin: int) -> tables.Scratch:
        """The scratch buffers of one thread."""
        return self.scratches[begin > 0]

    def _part(self, begin: int, end: int) -> tuple[np.ndarray, slice, slice]:
        """Index, members and blocks of some elements."""
        blocks = slice(begin // BLOCK_ELEMENTS, -(-end // BLOCK_ELEMENTS))
        span = slice(*self.placed.members.starts[[blocks.start, blocks.stop]].tolist())
        return self.index[begin // 64 : -(-end // 64)], span, blocks

    def write_two_levels(self, begin: int, end: int) -> None:
        """Write the index, and both levels of it."""
        self.scan(begin, end)
        bits.write_index(self.index, self.live.view(np.uint32)[: -(-self.index.size // 32)])
        bits.gather_words(self.live, self.index, self.live_words)

    def fill_filter(self, begin: int, end: int) -> None:
        """Write the index, and a Bloom filter of it."""
        self.scan(begin, end)
        self.filter.fill(0)
        bloom.insert(self.index, 0, self.filter_size.hashes, np.uint64(1), self.filter)

    def ask_filter(self, begin: int, end: int) -> None:
        """Ask the filter about every element."""
        first, last = begin // 64, -(-end // 64)
        bloom.query(self.filter, self.filter_size.hashes, np.uint64(1), first, self.named[first:last])


def loads_of(sparse: Sparse) -> list[Load]:
    """Loads whose speed or size depends on the density; add kernels of new codecs here."""
    sparse.fill_filter(0, sparse.gradient.size)
    index_bytes, words_bytes = sparse.narrow.nbytes, sparse.words.nbytes
    live_bytes = sparse.live.nbytes + sparse.live_words.nbytes
    zstd = zstandard.ZstdCompressor(level=1)
    return [
        Load("index, flat", sparse.scan, compressed_bytes=index_bytes),
        Load("index, two_level", sparse.write_two_levels, False, live_bytes),
        Load("index, bloom", sparse.fill_filter, False, sparse.filter.nbytes),
        Load("index, bloom: asked", sparse.ask_filter),
        Load("packed: encode (index, values)", sparse.pack, compressed_bytes=index_bytes + words_bytes),
        Load("packed: expand", sparse.expand),
        Load("block exponents", sparse.exponents),
        Load(
            "lossless: encode (index, exponents, tables)",
            sparse.sketch,
            compressed_bytes=index_bytes + sparse.counters.nbytes,
        ),
        Load("lossless: peel", sparse.peel),
        _compressor("zstd, level 1", zstd.compress, sparse.gradient),
        _compressor("lz4", lz4.frame.compress, sparse.gradient),
    ]


def loads_of_words(elements: int) -> list[Load]:
    """Loads that depend only on the number of words: merging them."""
    words, sums = np.arange(elements, dtype=np.int32), np.ones(elements, np.int32)
    return [
        Load("numpy add, in place", lambda a, b: np.add(sums[a:b], words[a:b], out=sums[a:b])),
        Load("merge of counters, ADD", lambda a, b: merge.add_words(sums[a:b], words[a:b])),
        Load("merge of indexes, OR", lambda a, b: merge.or_words(sums[a:b], words[a:b])),
    ]


def loads_of_sketches(elements: int) -> list[Load]:
    """Count sketches, and selecting the largest elements; each beside PyTorch."""
    both = sketches.Sketches(elements)
    sketch_bytes, chosen_bytes = both.sketch.nbytes, 8 * both.chosen
    return [
        Load(f"count sketch, {sketches.ROWS} rows", both.count, False, sketch_bytes),
        Load("  in PyTorch, tables and scatter", both.scatter, False, sketch_bytes),
        Load("count sketch: estimates of all", both.estimate, False),
        Load("  in PyTorch, gather and median", both.gather, False),
        Load(f"the largest {sketches.SHARE:.0%}", both.select, False, chosen_bytes),
        Load(f"  torch.topk(|x|, {sketches.SHARE:.0%})", both.topk, False, chosen_bytes),
    ]


def loads_of_rows(elements: int) -> list[Load]:
    """BIRD's message, beside the prototype's steps in PyTorch, sorting, and reading the gradient once."""
    rows = max(1, elements // ROW_ELEMENTS)
    gradient = np.random.default_rng(3).standard_normal(rows * ROW_ELEMENTS, np.float32)
    tensors = torch.from_numpy(gradient).view(rows, ROW_ELEMENTS)
    one_layer = (Tensor("weight", (rows, ROW_ELEMENTS), "layer"),)
    encoder = Bird(ROWS_SHARE).worker(0, 1, 0)
    round = Round(0, 0, 1, 1, tensors=one_layer)

    def encode(begin: int, end: int) -> int:
        (message,) = next(encoder.exchange(gradient, round))
        return message.size_bytes

    def sort(begin: int, end: int) -> object:
        return torch.sort(tensors.abs().view(-1), descending=True).indices[: int(ROWS_SHARE * elements)]

    return [
        Load("read once", lambda a, b: gradient.max(), False),
        Load("top-k by sorting all", sort, False, 8 * int(ROWS_SHARE * elements)),
        Load("bird in PyTorch", lambda a, b: _bird_in_torch(tensors), False),
        Load("bird: encode", encode, False, encode(0, elements)),
    ]


def _bird_in_torch(tensors: torch.Tensor) -> tuple[torch.Tensor, np.ndarray, torch.Tensor]:
    """Scale, sign bits and indices: norms, two samplings, signs of the rows that are left."""
    norms = tensors.abs().sum(dim=1)
    kept = torch.bernoulli(norms / norms.max()).nonzero().view(-1)
    count = -(-len(norms) // round(1 / ROWS_SHARE))
    factor = max(1.0, len(kept) / count)
    kept = kept[torch.randperm(len(kept))[:count]].sort().values
    signs = np.packbits((tensors[kept] < 0).numpy())
    return norms.max() / tensors.shape[1] * factor, signs, kept


@kernel
def _read(words: np.ndarray) -> np.int64:
    """Add up words."""
    total = np.int64(0)
    for i in range(words.size):
        total += words[i]
    return total


class Signs:
    """A gradient, what is held back, and room for their signs, already touched."""

    def __init__(self, elements: int) -> None:
        random = np.random.default_rng(3)
        self.gradient, self.residual = random.standard_normal((2, elements), np.float32)
        self.words = np.ones(words_of(elements), np.uint32)
        whole = elements // 8 * 8
        self._pair = [torch.from_numpy(one[:whole]) for one in (self.gradient, self.residual)]
        self._places = torch.arange(8, dtype=torch.uint8)
        self.bytes = torch.ones(whole // 8, dtype=torch.uint8)

    def pack(self, begin: int, end: int) -> None:
        """Write the signs of the sums."""
        pack_owed(self.gradient[begin:end], self.residual[begin:end], self.words[begin // 32 : -(-end // 32)])

    def pack_in_torch(self, begin: int, end: int) -> None:
        """The same, as one writes it with tensors."""
        gradient, residual = self._pair
        positive = (gradient + residual >= 0).view(-1, 8).to(torch.uint8)
        self.bytes = (positive << self._places).sum(1, dtype=torch.uint8)


def loads_of_signs(signs: Signs) -> list[Load]:
    """Packing signs with what is held back, which reads two arrays; beside reading one."""
    words = signs.gradient.view(np.int32)
    return [
        Load("read", lambda a, b: _read(words[a:b]), read_bytes=4),
        Load("marsit: encode (signs, residual)", signs.pack, True, signs.words.nbytes, 8),
        Load("the same in torch", signs.pack_in_torch, False, signs.words.nbytes),
    ]


def _compressor(name: str, compress: Callable[[memoryview], bytes], gradient: np.ndarray) -> Load:
    """A general-purpose compressor of bytes."""
    return Load(name, lambda a, b: compress(gradient.data), False, len(compress(gradient.data)))


def rate(load: Load, elements: int, pool: ThreadPoolExecutor | None = None) -> float:
    """Bytes of float32 per second, the best of some runs; on two threads if there is a pool."""
    middle = elements // 2 // BLOCK_ELEMENTS * BLOCK_ELEMENTS
    ranges = [(0, middle), (middle, elements)] if pool else [(0, elements)]
    load.work(0, elements)  # compiles
    seconds = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        if pool is None:
            load.work(0, elements)
        else:
            list(pool.map(lambda one: load.work(*one), ranges))
        seconds.append(time.perf_counter() - started)
    return 4 * elements / min(seconds)


def table(elements: int = ELEMENTS) -> Table:
    """Measure everything."""
    torch.set_num_threads(1)
    source, target = np.ones(elements, np.float32), np.ones(elements, np.float32)
    copy = Load("numpy copyto", lambda a, b: np.copyto(target[a:b], source[a:b]))
    copied = rate(copy, elements)
    signs = loads_of_signs(Signs(elements))
    read = rate(signs[0], elements)
    headings = "load", "density", "GB/s", "× copyto", "× copyto, 2 threads", "times smaller", "× read"
    rows = Table(*headings)
    with ThreadPoolExecutor(2) as pool:

        def measure(load: Load, density: str) -> None:
            alone = copied if load is copy else rate(load, elements)
            shared = f"{rate(load, elements, pool) / copied:.2f}" if load.is_divisible else ""
            size = f"{4 * elements / load.compressed_bytes:.1f}" if load.compressed_bytes else ""
            reads = f"{alone * load.read_bytes / 4 / read:.2f}" if load.read_bytes else ""
            rows.add_row(
                load.name, density, f"{alone / 1e9:.2f}", f"{alone / copied:.3f}", shared, size, reads
            )

        more = [*signs, *loads_of_words(elements), *loads_of_rows(elements), *loads_of_sketches(elements)]
        for load in [copy, *more]:
            measure(load, "")
        for density in DENSITIES:
            for load in loads_of(Sparse(elements, density)):
                measure(load, f"{density:.0%}")
    return rows
