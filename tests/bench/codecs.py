"""Speed of codecs on 100 MB of gradient, relative to copying it, beside sorting and general compression.

Every load passes over the same buffers, already touched, on one thread: NETFOLD_THREADS is 1, and PyTorch has
one. Those that can be divided run on two as well. A rate is in bytes of the gradient, or of the merged words,
regardless of the bytes that the load moves. Compare the ratio to `numpy.copyto`, which is measured in the
same run. Loads that only read are also compared with reading: the bytes that they read, per second, over
those of adding up an array.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import lz4.frame
import numpy as np
import torch
import zstandard
from rich.table import Table

from netfold.homomorphic import merge
from netfold.homomorphic import peeling as tables
from netfold.homomorphic import union_index as bits
from netfold.homomorphic import union_index as bloom
from netfold.homomorphic import union_index as members
from netfold.homomorphic.block_floating_point import Compact, all_of, announced_exponents
from netfold.homomorphic.number_formats import AgreedExponents
from netfold.homomorphic.sketch import REPAIRED_TILING, Seen, layout_of
from tests.bench import beside
from tests.bench.rates import BLOCK_ELEMENTS, Load, held, rate

ELEMENTS = 25_000_000  # 100 MB of float32
DENSITIES = (0.01, 0.05)
LOAD = 0.77


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
            members.support_of(self.index, BLOCK_ELEMENTS), AgreedExponents(exponents, 1)
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
        bits.write_index(self.gradient[begin:end], self.narrow[begin // 32 : -(-end // 32)])

    def _make_sketch(self) -> None:
        room = np.diff(self.placed.support.starts)
        seen = Seen(room, self.placed.agreed)
        layout = layout_of(REPAIRED_TILING, LOAD, self.gradient.size, seen, BLOCK_ELEMENTS)
        starts = np.append(self.placed.offsets[: -1 : layout.tile_blocks], self.placed.offsets[-1])
        words = np.cumsum(np.append(0, 3 * REPAIRED_TILING.lanes * layout.rows))
        tiling = REPAIRED_TILING.setting, REPAIRED_TILING.lanes, layout.tile_elements
        self.tables = tables.TileTables(*tiling, layout.rows, words, np.uint64(1))
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
        index, span, starts, agreed = self._part(begin, end)
        members.gather(index, self.gradient[begin:end], self.values[span])
        agreed.encode(self.values[span], starts, 1, self.words[span])

    def expand(self, begin: int, end: int) -> None:
        """Put the integers back where they belong, and zeros elsewhere."""
        index, span, starts, agreed = self._part(begin, end)
        agreed.decode(self.words[span], starts, 1, self.values[span])
        members.scatter(index, self.values[span], self.decoded[begin:end], True)

    def sketch(self, begin: int, end: int) -> None:
        """Write the index, the exponents, and the tables of its members."""
        self.pack(begin, end)
        _, _, starts, _ = self._part(begin, end)
        announced_exponents(Compact(self.values, starts, self.gradient), 1)
        tables.add(self.tables, self._tiles(begin, end), self.own, self.counters, self._scratch(begin))

    def peel(self, begin: int, end: int) -> None:
        """Recover the members' integers from the tables."""
        tiles = self._tiles(begin, end)
        tables.peel(self.tables, tiles, self.own, self.counters, self.is_failed, self._scratch(begin))

    def _tiles(self, begin: int, end: int) -> np.ndarray:
        size = self.tables.tile_elements
        return np.arange(-(-begin // size), -(-end // size))

    def _scratch(self, begin: int) -> tables.PeelingScratch:
        return self.scratches[begin > 0]

    def _part(self, begin: int, end: int) -> tuple[np.ndarray, slice, np.ndarray, AgreedExponents]:
        """Index, members, starts of blocks and exponents of some elements."""
        first, last = begin // BLOCK_ELEMENTS, -(-end // BLOCK_ELEMENTS)
        starts = self.placed.support.starts[first : last + 1]
        agreed = self.placed.agreed.part(first, last)
        return self.index[begin // 64 : -(-end // 64)], slice(int(starts[0]), int(starts[-1])), starts, agreed

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
        first, last = begin // 64, -(-end // 64)
        bloom.query(self.filter, self.filter_size.hashes, np.uint64(1), first, self.named[first:last])


def loads_of(sparse: Sparse) -> list[Load]:
    """Loads whose speed or size depends on the density; add kernels of new codecs here."""
    sparse.fill_filter(0, sparse.gradient.size)
    index_bytes, words_bytes = sparse.narrow.nbytes, sparse.words.nbytes
    live_bytes = sparse.live.nbytes + sparse.live_words.nbytes
    sketch_bytes = index_bytes + sparse.counters.nbytes
    zstd = zstandard.ZstdCompressor(level=1)
    return [
        Load("index, flat", sparse.scan, compressed_bytes=index_bytes),
        Load("index, two_level", sparse.write_two_levels, False, live_bytes),
        Load("index, bloom", sparse.fill_filter, False, sparse.filter.nbytes),
        Load("index, bloom: asked", sparse.ask_filter),
        Load("packed: encode (index, values)", sparse.pack, compressed_bytes=index_bytes + words_bytes),
        Load("packed: expand", sparse.expand),
        Load("block exponents", sparse.exponents),
        Load("lossless: encode (index, exponents, tables)", sparse.sketch, True, sketch_bytes),
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


def _compressor(name: str, compress: Callable[[memoryview], bytes], gradient: np.ndarray) -> Load:
    """A general-purpose compressor of bytes."""
    return Load(name, lambda a, b: compress(gradient.data), False, len(compress(gradient.data)))


def measure_all(elements: int = ELEMENTS) -> tuple[Table, Table]:
    """Measure everything; the second table is of the ratios that netfold is held to."""
    torch.set_num_threads(1)
    source, target = np.ones(elements, np.float32), np.ones(elements, np.float32)
    copy = Load("numpy copyto", lambda a, b: np.copyto(target[a:b], source[a:b]))
    of_signs = beside.sign_loads(elements)
    reading = of_signs[0]
    rates = {load.name: rate(load, elements) for load in (copy, reading)}
    copied, read = rates[copy.name], reading.speed(rates[reading.name])
    headings = "load", "density", "GB/s", "× copyto", "× copyto, 2 threads", "times smaller", "× read"
    measured, bars = Table(*headings), Table("load", "beside", "held to", "measured", "")
    with ThreadPoolExecutor(2) as pool:

        def measure(load: Load, density: str) -> float:
            alone = rates[load.name] if load in (copy, reading) else rate(load, elements)
            is_shared = load.is_divisible or load.divides_itself
            shared = f"{rate(load, elements, pool) / copied:.2f}" if is_shared else ""
            size = f"{4 * elements / load.compressed_bytes:.1f}" if load.compressed_bytes else ""
            reads = f"{load.speed(alone) / read:.2f}" if load.read_bytes else ""
            in_gigabytes, ratio = f"{alone / 1e9:.2f}", f"{alone / copied:.3f}"
            measured.add_row(load.name, density, in_gigabytes, ratio, shared, size, reads)
            return alone

        of_layers = [*beside.row_loads(elements), *beside.sketch_loads(elements)]
        of_all = [*of_signs, *loads_of_words(elements), *of_layers]
        for load in [copy, *of_all]:
            rates[load.name] = measure(load, "")
        for density in DENSITIES:
            for load in loads_of(Sparse(elements, density)):
                measure(load, f"{density:.0%}")
    for row in held(of_all, rates):
        bars.add_row(*row)
    return measured, bars
