"""Exact means exact: every sparse codec against integer sums in NumPy, and against correctly rounded sums.

With `values` block_exponent a sum is that of the workers' integers, whichever way they travelled. With
`exact` it is the float32 nearest to the true sum. Neither oracle shares code with the codecs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from docs.findings.patterns import Pattern, support
from netfold.homomorphic import sketch
from netfold.homomorphic.codec import Codec, codec_kinds
from netfold.homomorphic.codecs.lossless import Lossless
from netfold.homomorphic.codecs.none import Uncompressed
from netfold.homomorphic.codecs.packed import Packed
from netfold.homomorphic.fold import fold
from netfold.homomorphic.message import Gradient, Note, NoteKind, Round
from tests.examples import examples, nightly
from tests.homomorphic.gradients import Sample, bound_of, folded, samples, sparse
from tests.reference.codecs import digits
from tests.reference.codecs.codecs import scale_of
from tests.reference.codecs.digits import exact_sum

BLOCK_ELEMENTS = 4096  # that share an exponent, by default
SPARE_BITS = 3  # by which a forecast exponent may be too large
INDEXES = ("flat", "two_level", "bloom")
STAGED: tuple[tuple[str, dict[str, object]], ...] = (
    *(("lossless", {"index": index}) for index in INDEXES),
    ("lossless", {"load": 0.3, "block_elements": 64}),
    ("lossless", {"setting": "rotated", "index": "two_level", "load": 0.81}),
    *(("packed", {"index": index}) for index in INDEXES),
    ("block_sparse", {"blocks": "bitmap"}),
    ("block_sparse", {"blocks": "lookahead", "columns": 3}),
    ("dense", {"block_elements": BLOCK_ELEMENTS}),
)
CONCURRENT: tuple[dict[str, object], ...] = (
    *({"index": index} for index in INDEXES),
    {"setting": "rotated"},
    {"load": 0.81, "block_elements": 64},
)
EVERY_CODEC = pytest.mark.parametrize(
    ("kind", "options"), STAGED, ids=[" ".join(map(str, (kind, *o.values()))) for kind, o in STAGED]
)
EVERY_VALUES = pytest.mark.parametrize("values", ["block_exponent", "exact"])


class Shape(NamedTuple):
    """What the gradients of a round look like."""

    elements: int
    workers: int
    density: float
    pattern: Pattern
    kind: str  # of their values
    is_shared: bool  # all workers have the same support


def drawn_values(kind: str, elements: int, workers: int, random: np.random.Generator) -> Gradient:
    """Values that fixed point can carry with so many workers, which is up to 2^(127 − log2 workers)."""
    normal = random.standard_normal(elements)
    decades = {"normal": (0, 0), "wide": (-45, 38), "denormal": (-45, -38), "bfloat16": (-4, 0)}
    if kind == "negative zero":
        return np.where(random.random(elements) < 0.5, np.float32(-0.0), normal.astype(np.float32))
    low, high = decades[kind]
    limit = 2.0 ** (127 - workers.bit_length())
    values = np.clip(normal * 10.0 ** random.uniform(low, high, elements), -limit, limit).astype(np.float32)
    if kind == "bfloat16":
        values.view(np.uint32)[:] &= np.uint32(0xFFFF0000)
    return values


def gradients_of(shape: Shape, random: np.random.Generator) -> list[Gradient]:
    """One per worker; rows are of 64 elements, columns those of a matrix 4096 wide."""
    gradients: list[Gradient] = []
    live = None
    for _ in range(shape.workers):
        if live is None or not shape.is_shared:
            row_elements = 4096 if shape.pattern == "columns" else 64
            live = support(shape.pattern, shape.elements, shape.density, row_elements, random)
        values = drawn_values(shape.kind, shape.elements, shape.workers, random)
        gradients.append(np.where(live, values, np.float32(0)))
    return gradients


def integer_sums(gradients: Sequence[Gradient], block_elements: int, spare_bits: int = 0) -> Gradient:
    """Sums of integers, each block's of a step that its largest magnitude sets."""
    workers, sums = len(gradients), np.zeros(gradients[0].size, np.float32)
    for first in range(0, sums.size, block_elements):
        block = slice(first, first + block_elements)
        largest = max(float(np.abs(one[block]).max()) for one in gradients)
        exponent = max(math.frexp(largest)[1], -96 - (workers - 1).bit_length()) + spare_bits
        scale = scale_of(min(exponent, 128 - workers.bit_length()), workers)
        total = np.zeros(sums[block].size, np.int64)
        for one in gradients:
            total += np.rint(one[block] * scale).astype(np.int64)
        sums[block] = total.astype(np.float32) / scale
    return sums


def nearest_sums(gradients: Sequence[Gradient]) -> Gradient:
    """The float32 nearest to each true sum; `fsum` gives the nearest double, whose ties fractions settle."""
    sums = np.zeros(gradients[0].size, np.float32)
    live = np.flatnonzero(np.any([one != 0 for one in gradients], axis=0))
    columns = np.array([one[live] for one in gradients], np.float64).T
    doubles = np.array([math.fsum(column) for column in columns.tolist()]) + 0.0
    with np.errstate(over="ignore"):
        sums[live] = doubles
    low = np.nextafter(sums[live], np.float32(-np.inf)).astype(np.float64)
    high = np.nextafter(sums[live], np.float32(np.inf)).astype(np.float64)
    middle = sums[live].astype(np.float64)
    with np.errstate(invalid="ignore"):
        is_tie = (2 * doubles == low + middle) | (2 * doubles == middle + high) | ~np.isfinite(middle)
    for one in np.flatnonzero(is_tie):
        sums[live[one]] = exact_sum(columns[one].tolist())
    return sums


def expected(gradients: Sequence[Gradient], codec: Codec) -> Gradient:
    if codec.values == "exact":
        return nearest_sums(gradients)
    return integer_sums(gradients, codec.block_elements)


def decoded(codec: Codec, gradients: list[Gradient], order: list[int], seed: int) -> Gradient:
    """What all workers decode, which must be the same."""
    workers = len(gradients)
    encoders = [codec.worker(rank, workers, 0) for rank in range(workers)]
    sums = fold(encoders, gradients, Round(3, 1, workers, seed), order).decoded

    assert {one.tobytes() for one in sums} == {sums[0].tobytes()}
    return sums[0]


def assert_same(found: Gradient, wanted: Gradient) -> None:
    """Bit for bit; else the first element that differs is in the message."""
    wrong = np.flatnonzero(found.view(np.uint32) != wanted.view(np.uint32))

    assert [(int(e), float(found[e]), float(wanted[e])) for e in wrong[:3]] == []


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    workers = draw(st.one_of(st.integers(1, 8), st.sampled_from([16, 33, 64])))
    most = 6_000 if workers <= 8 else 2_000
    return Shape(
        elements=draw(st.one_of(st.integers(1, 200), st.integers(1, most), st.sampled_from([64, 256, 1024]))),
        workers=workers,
        density=draw(st.sampled_from([0.0, 0.001, 0.01, 0.05, 0.1, 0.31, 0.6, 0.9, 1.0])),
        pattern=draw(st.sampled_from(["iid", "rows", "columns", "power-law rows"])),
        kind=draw(st.sampled_from(["normal", "wide", "denormal", "bfloat16", "negative zero"])),
        is_shared=draw(st.booleans()),
    )


@EVERY_VALUES
@EVERY_CODEC
@given(shape=shapes(), seed=st.integers(0, 2**32))
@examples(6)
def test_sums_are_exact_in_a_round(
    kind: str, options: dict[str, object], values: str, shape: Shape, seed: int
) -> None:
    random = np.random.default_rng(seed)
    gradients = gradients_of(shape, random)
    codec = codec_kinds()[kind](values=values, **options)

    found = decoded(codec, gradients, random.permutation(shape.workers).tolist(), seed)

    assert_same(found, expected(gradients, codec))


def drifting(shape: Shape, random: np.random.Generator) -> Iterator[list[Gradient]]:
    """Rounds that grow denser and larger, then sparser, and end with zeros and a surprise."""
    for factor in (1.0, 1.1, 2.0, 0.3, 0.0, 3.0):
        scaled = shape._replace(density=min(1.0, factor * shape.density))
        size = np.float32(factor / 3 or 1)  # at most 1: values may be as large as can be carried
        yield [one * size for one in gradients_of(scaled, random)]


@EVERY_VALUES
@pytest.mark.parametrize("options", CONCURRENT, ids=[" ".join(map(str, o.values())) for o in CONCURRENT])
@given(shape=shapes(), seed=st.integers(0, 2**32))
@examples(3)
def test_sums_are_exact_when_they_travel_with_their_index(
    options: dict[str, object], values: str, shape: Shape, seed: int
) -> None:
    """Every block is the sum of integers of its own step, or of one up to 2^3 times as large, if forecast."""
    random = np.random.default_rng(seed)
    codec = codec_kinds()["lossless"](schedule="concurrent", values=values, **options)
    encoders = [codec.worker(rank, shape.workers, 0) for rank in range(shape.workers)]
    for step, gradients in enumerate(drifting(shape, random)):
        sums = fold(encoders, gradients, Round(step, 0, shape.workers, seed)).decoded

        assert {one.tobytes() for one in sums} == {sums[0].tobytes()}
        assert_same(sums[0], expected_of_forecast(sums[0], gradients, codec))


def expected_of_forecast(found: Gradient, gradients: list[Gradient], codec: Codec) -> Gradient:
    """Of integers: the sums with the spare bits, block by block, for which they are those found, if any."""
    if codec.values == "exact":
        return nearest_sums(gradients)
    block_elements = codec.block_elements
    best = integer_sums(gradients, block_elements)
    for spare_bits in range(1, SPARE_BITS + 1):
        coarser = integer_sums(gradients, block_elements, spare_bits)
        for first in range(0, found.size, block_elements):
            block = slice(first, first + block_elements)
            if found[block].tobytes() == coarser[block].tobytes():
                best[block] = coarser[block]
    return best


@EVERY_VALUES
@pytest.mark.parametrize(
    ("elements", "pattern", "kind"),
    [
        (30_017, "columns", "normal"),
        pytest.param(10**6, "columns", "wide", marks=nightly),
        pytest.param(10**7, "iid", "normal", marks=nightly),
    ],
)
@pytest.mark.parametrize("setting", ["repaired", "rotated"])
def test_sums_are_exact_in_many_tiles(
    monkeypatch: pytest.MonkeyPatch, setting: str, elements: int, pattern: Pattern, kind: str, values: str
) -> None:
    monkeypatch.setattr(sketch, "TILE_MEMBERS", elements // 30)
    density = 0.31 if pattern == "columns" else 0.05
    shape = Shape(elements, 3, density, pattern, kind, is_shared=pattern == "columns")
    gradients = gradients_of(shape, np.random.default_rng(elements))
    codec = codec_kinds()["lossless"](setting=setting, values=values)

    assert_same(decoded(codec, gradients, [2, 0, 1], 9), expected(gradients, codec))


def test_sums_beyond_float32_become_infinite_and_are_reported() -> None:
    """A true sum of half a step below 2^128 or more rounds to infinity; ties below it do not."""
    largest = np.float32(2**128 - 2**104)
    gradients = [np.array([largest, largest, 0, -largest], np.float32) for _ in range(2)]
    gradients[1][1] = np.float32(2**102)  # a quarter of a step
    notes: list[Note] = []
    for kind, options in (("lossless", {"load": 0.3}), ("packed", {}), ("exact", {}), ("block_sparse", {})):
        codec = codec_kinds()[kind](**({} if kind == "exact" else {"values": "exact"}), **options)
        encoders = [codec.worker(rank, 2, 0) for rank in range(2)]
        sums = fold(encoders, gradients, Round(0, 0, 2, 0, report=notes.append)).decoded[0]

        assert sums.tolist() == [math.inf, float(largest), 0, -math.inf]
        assert notes[-1].kind is NoteKind.INFINITE
        assert notes[-1].elements is not None
        assert notes[-1].elements.tolist() == [0, 3]


VALUES = ["block_exponent", "float32", "exact"]
VALUES_BLOCK_ELEMENTS = 256
SAMPLE = sparse(6000, 0.02, 3)  # enough for every message there is: filters, tables, blocks
ENCODINGS = [
    *((kind, options) for kind, options in STAGED if kind != "dense"),
    *(("lossless", {"schedule": "concurrent", **options}) for options in CONCURRENT),
]
every_encoding = pytest.mark.parametrize(
    ("kind", "options"), ENCODINGS, ids=[" ".join(map(str, (kind, *o.values()))) for kind, o in ENCODINGS]
)
every_value = pytest.mark.parametrize("values", VALUES)


@every_encoding
@examples(5)
@given(sample=samples())
def test_float_sums_are_those_of_dense_words(kind: str, options: dict[str, Any], sample: Sample) -> None:
    """Within the bound in a sketch, else to the bit; but dense words keep −0.0, which is no member."""
    codec = codec_kinds()[kind](values="float32", **options)
    dense = folded(Uncompressed(), sample.gradients, sample.order).decoded[0]

    decoded = folded(codec, sample.gradients, sample.order).decoded[0]

    if kind == "lossless":
        total = np.sum(sample.gradients, axis=0, dtype=np.float64)
        assert (np.abs(decoded - total) <= bound_of(codec, sample.gradients)).all()
    else:
        assert dense.tolist() == decoded.tolist()


@every_encoding
@every_value
def test_it_names_its_merges_and_whether_their_order_shows(
    kind: str, options: dict[str, Any], values: str
) -> None:
    codec = codec_kinds()[kind](values=values, **options)
    drawn = np.random.default_rng(0).standard_normal((3, 6000), np.float32)
    gradients = list(np.where(SAMPLE[0] != 0, drawn, np.float32(0)))

    by_rank, backwards = (folded(codec, gradients, order) for order in ([0, 1, 2], [2, 1, 0]))

    assert codec.merges == {message.merge for operation in by_rank.messages for message in operation[0]}
    assert codec.is_order_free == (values != "float32")
    assert codec.is_order_free == (by_rank.decoded[0].tobytes() == backwards.decoded[0].tobytes())


def digits_of_blocks(gradients: list[Gradient]) -> list[int]:
    """Words per value of exact numbers, block by block, from the bits of the values."""
    digit_bits = 31 - (len(gradients) - 1).bit_length()
    counts = []
    for first in range(0, gradients[0].size, VALUES_BLOCK_ELEMENTS):
        some = [x for one in gradients for x in one[first : first + VALUES_BLOCK_ELEMENTS].tolist() if x != 0]
        tops = (math.frexp(x)[1] for x in some)
        bits = max(tops) - min(map(digits.lowest_bit, some)) if some else 0
        counts.append(-(-bits // digit_bits))
    return counts


def value_bytes(values: str, gradients: list[Gradient], wanted: np.ndarray) -> int:
    """What packed words of the wanted elements take, with what is agreed first."""
    per_block = np.add.reduceat(
        wanted, np.arange(0, wanted.size, VALUES_BLOCK_ELEMENTS), dtype=np.int64
    ).tolist()
    if values != "exact":
        announced_bytes = 4 * len(per_block) if values == "block_exponent" else 0
        return announced_bytes + 4 * sum(per_block)
    counts = digits_of_blocks(gradients)
    return 8 * len(per_block) + 4 * sum(m * k for m, k in zip(per_block, counts, strict=True))


@every_value
@pytest.mark.parametrize("elements", [1000, 6000])
@pytest.mark.parametrize("density", [0.0, 0.01, 0.3])
def test_bytes_of_packed_values(values: str, elements: int, density: float) -> None:
    gradients = sparse(elements, density, 3)
    union = np.any(gradients, axis=0)
    live = np.unique(np.flatnonzero(union) // 64).size
    of_values = value_bytes(values, gradients, union)

    flat = folded(Packed(values, "flat", VALUES_BLOCK_ELEMENTS), gradients)
    two_level = folded(Packed(values, "two_level", VALUES_BLOCK_ELEMENTS), gradients)

    assert 4 * -(-elements // 32) + of_values == flat.announced_bytes(0)
    assert 4 * -(-elements // 2048) + 8 * live + of_values == two_level.announced_bytes(0)


@every_value
@pytest.mark.parametrize("density", [0.01, 0.1])
def test_bytes_of_a_sketch(values: str, density: float) -> None:
    """One tile: its table has 32 counters more than the load asks for, in three equal segments."""
    gradients = sparse(6000, density, 3)
    union = np.any(gradients, axis=0)
    counters = 3 * int(np.ceil((np.ceil(union.sum() / 0.77) + 32) / 3))
    planes = max(digits_of_blocks(gradients)) if values == "exact" else 1
    announced_bytes = {"block_exponent": 4, "float32": 0, "exact": 8}[values] * 24

    result = folded(Lossless(values=values, block_elements=VALUES_BLOCK_ELEMENTS), gradients)

    assert len(result.messages) == 2
    assert 4 * 188 + announced_bytes + 4 * planes * counters == result.announced_bytes(0)
