"""Gradients of several workers: supports and values that have broken encodings before."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from netfold.homomorphic.bounds import whole_bound
from netfold.homomorphic.codec import Codec
from netfold.homomorphic.fold import Folded, fold
from netfold.homomorphic.merge import merge_all
from netfold.homomorphic.message import Gradient, Merge, Merged
from netfold.homomorphic.numbers.compact import all_of
from netfold.homomorphic.numbers.formats import Agreed, NumberFormat
from netfold.homomorphic.round import Round
from netfold.testing import PATTERNS, VALUES, support, values
from netfold.testing.steps import Steps


class Sample(NamedTuple):
    gradients: list[Gradient]
    round: Round
    order: list[int]


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    workers = draw(st.sampled_from([*range(1, 9), 32, 64]))
    elements = draw(st.one_of(st.integers(1, 100), st.integers(1000, 6000)))
    density = draw(st.sampled_from([0.0, 0.003, 0.02, 0.1, 0.3, 0.6, 1.0]))
    pattern = draw(st.sampled_from(PATTERNS))
    kind = draw(st.sampled_from(VALUES))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    gradients = [
        np.where(
            support(pattern, elements, density, random=random), values(kind, elements, random), np.float32(0)
        )
        for _ in range(workers)
    ]
    round = Round(draw(st.integers(0, 9)), draw(st.integers(0, 9)), workers, draw(st.integers(0, 2**63)))
    return Sample(gradients, round, random.permutation(workers).tolist())


def rows_of(
    values: st.SearchStrategy[float], elements_max: int, workers_max: int
) -> st.SearchStrategy[list[list[float]]]:
    """As many values of each worker."""
    return st.integers(1, elements_max).flatmap(
        lambda n: st.lists(st.lists(values, min_size=n, max_size=n), min_size=1, max_size=workers_max)
    )


class Kind(NamedTuple):
    """Of a round: where its members are, and how large."""

    density: float
    exponent: int = 0  # values are of this magnitude, times 1 to 2
    begin: float = 0.0  # members lie between these shares of the bucket …
    end: float = 1.0
    dense_to: float = 0.0  # … and all elements up to here are members


def drawn(kind: Kind, workers: int, elements: int, seed: int) -> list[Gradient]:
    random = np.random.default_rng([seed, workers])
    place = np.arange(elements) / elements
    gradients = []
    for _ in range(workers):
        wanted = (random.random(elements) < kind.density) & (kind.begin <= place) & (place < kind.end)
        wanted |= place < kind.dense_to
        magnitudes = np.ldexp(1 + random.random(elements), kind.exponent) * random.choice([-1, 1], elements)
        gradients.append(np.where(wanted, magnitudes, 0).astype(np.float32))
    return gradients


def folded(codec: Codec, gradients: list[Gradient], order: list[int] | None = None, step: int = 0) -> Folded:
    workers = len(gradients)
    encoders = [codec.worker(rank, workers, 0) for rank in range(workers)]
    Steps(workers).begin(encoders, gradients, step)
    return fold(encoders, gradients, Round(step, 0, workers, 7), order, codec.server(workers, 0))


def bound_of(codec: Any, gradients: list[Gradient], **more: bool) -> np.ndarray:
    """The error bound of every element, of a codec or a number format."""
    return whole_bound(codec.error_bound(gradients, **more), gradients)


def sparse(
    elements: int, density: float, workers: int, pattern: str = "iid", seed: int = 1
) -> list[Gradient]:
    """Normal values; every worker's own elements."""
    random = np.random.default_rng([seed, workers])
    return [
        np.where(
            support(pattern, elements, density, random=random),
            random.standard_normal(elements, np.float32),
            np.float32(0),
        )
        for _ in range(workers)
    ]


def labels(result: Folded) -> list[str]:
    """Of worker 0's messages."""
    return [message.label for operation in result.messages for message in operation[0]]


def agreed(form: NumberFormat, gradients: list[Gradient]) -> Agreed:
    """What the workers agree on of a number format, block by block."""
    round = Round(0, 0, len(gradients), 0)
    sent = [form.announce(all_of(gradient, form.block_elements), round) for gradient in gradients]
    merged = [
        Merged(merge_all(Merge.MAX, [one.words for one in part]), len(gradients))
        for part in zip(*sent, strict=True)
    ]
    return form.agree(gradients[0].size, sent[-1], merged, round)


def starts_of(elements: int, block_elements: int) -> np.ndarray:
    return np.append(np.arange(0, elements, block_elements), elements).astype(np.int64)
