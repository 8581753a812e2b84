"""Every encoding with all values and indexes: the bits of dense sums, its merges, its bytes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from netfold.homomorphic.codec import Codec
from netfold.homomorphic.codecs import codec_kinds
from netfold.homomorphic.codecs.dense.kinds import DenseExact, FixedPoint, Uncompressed
from netfold.homomorphic.codecs.sketched.lossless import Lossless
from netfold.homomorphic.codecs.sparse.packed import Packed
from netfold.homomorphic.message import Gradient
from tests.examples import examples
from tests.homomorphic.codecs.test_bit_exact import CONCURRENT, STAGED
from tests.homomorphic.gradients import Sample, bound_of, folded, samples, sparse
from tests.reference.codecs import digits

VALUES = ["block_exponent", "float32", "exact"]
INDEXES = ["flat", "two_level", "bloom"]
BLOCK_ELEMENTS = 256


DENSE: dict[str, Codec] = {
    "block_exponent": FixedPoint(BLOCK_ELEMENTS),
    "float32": Uncompressed(),
    "exact": DenseExact(BLOCK_ELEMENTS),
}
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
    for first in range(0, gradients[0].size, BLOCK_ELEMENTS):
        some = [x for one in gradients for x in one[first : first + BLOCK_ELEMENTS].tolist() if x != 0]
        tops = (math.frexp(x)[1] for x in some)
        bits = max(tops) - min(map(digits.lowest_bit, some)) if some else 0
        counts.append(-(-bits // digit_bits))
    return counts


def value_bytes(values: str, gradients: list[Gradient], wanted: np.ndarray) -> int:
    """What packed words of the wanted elements take, with what is agreed first."""
    per_block = np.add.reduceat(wanted, np.arange(0, wanted.size, BLOCK_ELEMENTS), dtype=np.int64).tolist()
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

    flat = folded(Packed(values, "flat", BLOCK_ELEMENTS), gradients)
    two_level = folded(Packed(values, "two_level", BLOCK_ELEMENTS), gradients)

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

    result = folded(Lossless(values=values, block_elements=BLOCK_ELEMENTS), gradients)

    assert len(result.messages) == 2
    assert 4 * 188 + announced_bytes + 4 * planes * counters == result.announced_bytes(0)
