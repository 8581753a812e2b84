"""BIRD, BIRD+ as reconstructed, and the variant with shared rows: plain Python, in float64, row by row.

A layer is a list of rows and of vectors that ride along; a bucket is a list of layers.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field

from tests.reference.systems.count_sketch import MASK, mixed, splitmix

FIRST, SECOND, SHARED = 29, 30, 31  # streams of draws


def uniform(key: int, index: int) -> float:
    return (splitmix(key + index & MASK) >> 11) / 2**53


@dataclass
class Layer:
    rows: list[list[float]]
    riders: list[list[float]] = field(default_factory=list)


@dataclass
class Sent:
    """Of a layer: the rows that are kept, and the magnitude of what each stands for."""

    rows: list[int]
    scales: list[float]
    layer_scale: float = 0.0  # of the message


def l1(row: list[float]) -> float:
    return math.fsum(abs(value) for value in row)


def l2(row: list[float]) -> float:
    return math.sqrt(math.fsum(value * value for value in row))


def limit_of(share: float, rows: int) -> int:
    return min(rows, max(1, math.ceil(share * rows)))


def second_sampling(kept: list[int], count: int, key: int) -> tuple[list[int], float]:
    """A random subset: those with the smallest hashes."""
    if len(kept) <= count:
        return kept, 1.0
    drawn = sorted(range(len(kept)), key=lambda index: splitmix(key + index & MASK))[:count]
    return sorted(kept[index] for index in drawn), len(kept) / count


def bird(layer: Layer, place: tuple[int, ...], share: float, norm: str = "l1") -> Sent:
    """`place`: seed, step, bucket, worker, number of the layer."""
    seed, *rest = place
    norms = [l1(row) if norm == "l1" else l2(row) for row in layer.rows]
    largest = max(norms, default=0.0)
    if largest == 0:
        return Sent([], [])
    key = mixed(seed, FIRST, *rest)
    kept = [i for i, own in enumerate(norms) if uniform(key, i) < own / largest]
    kept, f = second_sampling(kept, limit_of(share, len(norms)), mixed(seed, SECOND, *rest))
    n = len(layer.rows[0])
    scale = largest / (n if norm == "l1" else math.sqrt(n)) * f
    return Sent(kept, [scale] * len(kept), scale if kept else 0.0)


def bird_plus(layer: Layer, place: tuple[int, ...], gamma: float, by_row: bool = False) -> Sent:
    seed, *rest = place
    norms = [l1(row) for row in layer.rows]
    largest = max(norms, default=0.0)
    if largest == 0:
        return Sent([], [])
    chances = [(own / largest) ** gamma if own > 0 else 0.0 for own in norms]
    key = mixed(seed, FIRST, *rest)
    kept = [i for i, chance in enumerate(chances) if uniform(key, i) < chance]
    n = len(layer.rows[0])
    if by_row:
        return Sent(kept, [norms[i] / (n * chances[i]) for i in kept])
    scale = math.fsum(norms) / (n * math.fsum(chances))
    return Sent(kept, [scale] * len(kept), scale if kept else 0.0)


def decoded(layer: Layer, sent: Sent) -> Layer:
    """The layer that a message stands for: ± the scale in rows that are kept; zeros count as positive."""
    scales = dict(zip(sent.rows, sent.scales, strict=True))

    def value(row: int, own: float) -> float:
        return 0.0 if row not in scales else -scales[row] if own < 0 else scales[row]

    return Layer(
        [[value(i, one) for one in row] for i, row in enumerate(layer.rows)],
        [[value(i, one) for i, one in enumerate(rider)] for rider in layer.riders],
    )


def message(layers: list[Layer], sent: list[Sent], tensors: list[list[int]]) -> bytes:
    """The bytes of a message with scales for layers.

    `tensors[layer]`: places of the rows' tensor, then of the riders'. Scales in their order, the number of
    signs, signs MSB first (padded to 4 bytes), indices, rows of each layer.
    """
    scales = {place: one.layer_scale for one, places in zip(sent, tensors, strict=True) for place in places}
    signs = ""
    for layer, one in zip(layers, sent, strict=True):
        signs += "".join(str(int(value < 0)) for i in one.rows for value in layer.rows[i])
        signs += "".join(str(int(rider[i] < 0)) for rider in layer.riders for i in one.rows)
    padded = signs.ljust(-(-len(signs) // 32) * 32, "0")
    data = struct.pack(f"<{len(scales)}f", *(scales[place] for place in sorted(scales)))
    data += struct.pack("<I", len(signs))
    data += bytes(int(padded[at : at + 8], 2) for at in range(0, len(padded), 8))
    for one in sent:
        data += struct.pack(f"<{len(one.rows)}I", *one.rows)
    return data + struct.pack(f"<{len(sent)}I", *(len(one.rows) for one in sent))


def shared(workers: list[Layer], place: tuple[int, ...], share: float) -> tuple[list[int], float]:
    """Rows that all workers keep of a layer, and the scale of a sign. `place`: seed, step, bucket, layer."""
    seed, *rest = place
    n = len(workers[0].rows[0])
    means = [[l1(row) / n for row in layer.rows] for layer in workers]
    largest = max(max(own, default=0.0) for own in means)
    if largest == 0:
        return [], 0.0
    largest = _float32_above(largest)
    sums = [0] * len(workers[0].rows)
    for rank, own in enumerate(means):
        key = mixed(seed, SHARED, *rest, 1, rank)
        for i, mean in enumerate(own):
            exact = mean / largest * 65535
            sums[i] += math.floor(exact) + (uniform(key, i) < exact - math.floor(exact))
    top = max(sums)
    if top == 0:
        return [], 0.0
    key = mixed(seed, SHARED, *rest, 0)
    kept = [i for i, total in enumerate(sums) if uniform(key, i) < total / top]
    kept, f = second_sampling(kept, limit_of(share, len(sums)), mixed(seed, SECOND, *rest, 0))
    return kept, top * largest / (65535 * len(workers)) * f


def _float32_above(value: float) -> float:
    (rounded,) = struct.unpack("<f", struct.pack("<f", value))
    if rounded >= value:
        return float(rounded)
    (bits,) = struct.unpack("<I", struct.pack("<f", rounded))
    (above,) = struct.unpack("<f", struct.pack("<I", bits + 1))
    return float(above)
