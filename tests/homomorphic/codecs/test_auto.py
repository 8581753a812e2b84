"""Codec `auto`: expected costs against what codecs announce, and the choices made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from netfold.homomorphic.codec import Carrier, Codec, MessageSize
from netfold.homomorphic.codecs.auto import Auto, Choice, Experience, RoundCost, round_ps
from netfold.homomorphic.codecs.dense import Dense
from netfold.homomorphic.fold import AllReduceResult, fold
from netfold.homomorphic.merge import Merged
from netfold.homomorphic.message import Gradient, Note, NoteKind, Round
from netfold.homomorphic.number_formats import Values, number_format
from netfold.homomorphic.sketch import History
from netfold.testing import support

NS, US, GBPS = 10**3, 10**6, 10**9


class OneByOne(Carrier):
    """Each message of an operation waits for the one before it, as on a ring."""

    def plain_ps(self, messages: Sequence[int]) -> int:
        return sum(self.latency_ps + self.words_ps(words) for words in messages if words)


NETWORK = Carrier(latency_ps=10 * US, rate_bps=80 * GBPS, memory_bps=4000 * GBPS)
RING = OneByOne(latency_ps=10 * US, rate_bps=100 * GBPS)
SLOW_RING = OneByOne(latency_ps=10 * US, rate_bps=10 * GBPS)

Draw = Callable[[float, int], list[Gradient]]  # of a density, for a step


def drawn(density: float, seed: int, elements: int = 50_000, pattern: str = "iid") -> Gradient:
    random = np.random.default_rng(seed)
    live = support(pattern, elements, density, random=random)
    return np.where(live, random.standard_normal(elements), 0).astype(np.float32)


def rounds(
    codec: Codec, gradients: Iterable[list[Gradient]]
) -> tuple[list[AllReduceResult], list[list[Note]]]:
    """Round after round of one bucket, and the notes of worker 0 on each."""
    results, notes, encoders = [], [], None
    for step, own in enumerate(gradients):
        reported: list[Note] = []
        encoders = encoders or [codec.worker(rank, len(own), 0) for rank in range(len(own))]
        results.append(fold(encoders, own, Round(step, 0, len(own), 7, report=reported.append)))
        notes.append(reported[:: len(own)])
    return results, notes


def announced_cost(result: AllReduceResult) -> RoundCost:
    """What a round really asked for, from its messages."""
    operations = tuple(
        tuple(MessageSize(message.words.size) for message in own[0]) for own in result.messages
    )
    works = [
        work for own in result.messages for message in own[0] for work in (message.work, message.decode_work)
    ]
    return RoundCost(operations, sum(work.read_bytes + work.written_bytes for work in works))


def staged(cost: RoundCost) -> list[list[int]]:
    """Words of the messages of its operations, none of which is scaled: exponents go ahead of their words."""
    found = []
    for operation in cost.operations:
        scaled = [size for size in operation if size.block_elements]
        if scaled:
            found.append([-(-size.words // (size.block_elements or 1)) for size in operation])
        found.append([size.words for size in scaled or operation])
    return found


def chosen(notes: list[list[Note]]) -> list[str]:
    return [note.name for own in notes for note in own if note.kind is NoteKind.CHOICE]


@pytest.mark.parametrize("values", ["block_exponent", "float32", "exact"])
@pytest.mark.parametrize(
    ("pattern", "density"), [("iid", 0.004), ("rows", 0.05), ("columns", 0.2), ("iid", 1.0)]
)
def test_what_is_expected_of_a_choice_is_what_its_codec_announces(
    values: Values, pattern: str, density: float
) -> None:
    """One worker with the same gradient twice: its members are the union, and the forecast is right."""
    gradient = drawn(density, 1, pattern=pattern)
    numbers = number_format(values, 4096)
    (first, _), _ = rounds(Auto(values).choices[Choice.PACKED], [[gradient]] * 2)
    known = Experience(values, numbers, 256, history := History())
    observed = {one.label: (one, Merged(one.words, 1)) for one in first.messages[0][0]}
    seen = known.learn(gradient, observed, Round(0, 0, 1, 7))
    assert seen is not None
    history.add(Round(0, 0, 1, 7), gradient.size, seen)
    expected = known.costs(Round(1, 0, 1, 7))

    for choice, codec in Auto(values).choices.items():
        (_, result), notes = rounds(codec, [[gradient]] * 2)
        found = announced_cost(result)
        (cost,) = expected[choice]

        assert not notes[1], "nothing was sent again"
        operations = [[words for words in operation if words] for operation in staged(cost)]
        assert [operation for operation in operations if operation] == staged(found), choice
        assert cost.passed_bytes == pytest.approx(found.passed_bytes, rel=0.01), choice


def test_the_time_of_operations_is_that_of_their_round_trips_and_words() -> None:
    carrier = Carrier(latency_ps=5 * US, rate_bps=32 * GBPS, memory_bps=8 * GBPS)
    cost = RoundCost(((MessageSize(50), MessageSize(130)), (MessageSize(0),), (MessageSize(1000),)), 2000)
    # A word and a byte are 1 ns each; nothing is sent in the second operation.
    assert round_ps(cost, carrier) == 5 * US + 180 * NS + 5 * US + 1000 * NS + 2000 * NS

    # 1000 words in blocks of 64: 16 exponents go before them, and with them what is not scaled.
    scaled = MessageSize(1000, block_elements=64), MessageSize(7)
    assert carrier.time_ps(scaled) == 5 * US + 23 * NS + 5 * US + 1000 * NS

    # Other networks have times of their own.
    ring = OneByOne(latency_ps=5 * US, rate_bps=32 * GBPS)
    assert round_ps(cost, ring) == 3 * 5 * US + 1180 * NS


def test_the_note_of_a_choice() -> None:
    gradient = np.zeros(64_000, np.float32)
    gradient[:256] = 1
    codec = Auto("float32", latency_us=1, rate_gbps=32)

    _, notes = rounds(codec, [[gradient] * 2] * 2)

    # A word is 1 ns. 8 words of bits, then 256 values; 32 of bits of runs, 8 of those of four, 256 values;
    # 2000 of index and 3 x 148 of a sketch with room for 317 at a load of 0.77, and 32 to spare; and so on.
    assert [note.text for own in notes for note in own] == [
        "packed: nothing has been measured yet",
        "block_sparse, bitmap: 2.26 us expected, packed, two_level 3.3, lossless, concurrent 3.44, "
        "packed 4.26, dense 65; the last round had 256 of 64000 elements",
    ]


@pytest.mark.parametrize(("values", "is_streamed"), [("block_exponent", True), ("exact", False)])
def test_a_jump_in_density_makes_one_round_wrong_at_most(values: Values, is_streamed: bool) -> None:
    """Every other round takes at most 5 % more than in the fixed encoding that is best in it.

    With enough members in a block that what is forecast of them is a matter of their density, not of luck.
    """
    network = (Carrier if is_streamed else OneByOne)(latency_ps=10 * US, rate_bps=80 * GBPS)
    densities = [0.01] * 4 + [0.6] * 4 + [0.03] * 4 + [0.01] * 3
    gradients = [[drawn(one, 9 * step + rank) for rank in range(3)] for step, one in enumerate(densities)]
    jumps = [step for step in range(1, 15) if densities[step] != densities[step - 1]]

    results, notes = rounds(Auto(values).carried_by(network), gradients)
    fixed = [rounds(codec, gradients)[0] for codec in Auto(values).choices.values()]

    for step, result in enumerate(results):
        times_ps = [round_ps(announced_cost(one[step]), network) for one in fixed]
        if step and step not in jumps:
            mine_ps = round_ps(announced_cost(result), network)
            assert mine_ps <= 1.05 * min(times_ps), (step, notes[step], times_ps)
    assert len(set(chosen(notes))) >= 2


def cancelling(density: float, step: int) -> list[Gradient]:
    """Two pairs of workers whose sums are zero everywhere."""
    one, other = (drawn(density, 9 * step + pair) for pair in range(2))
    return [one, -one, other, -other]


def vanishing(density: float, step: int) -> list[Gradient]:
    """All values but one are less than half a step of their block."""
    gradients = np.stack([drawn(density, 9 * step + rank) for rank in range(4)]) * np.float32(1e-12)
    gradients[:, ::4096] = 1
    return [*gradients]


@pytest.mark.parametrize("draw", [cancelling, vanishing])
@pytest.mark.parametrize(
    ("density", "live_blocks", "network", "best"),
    [
        (0.005, 1.0, SLOW_RING, Choice.PACKED),
        (0.02, 1.0, SLOW_RING, Choice.PACKED),
        (0.2, 1.0, Carrier(latency_ps=10 * US, rate_bps=100 * GBPS), Choice.CONCURRENT),
        (1.0, 0.05, SLOW_RING, Choice.BITMAP),
        (1.0, 1.0, RING, Choice.DENSE),
    ],
)
def test_what_a_sum_hides_is_known(
    draw: Draw, density: float, live_blocks: float, network: Carrier, best: Choice
) -> None:
    """The best encoding from the second round on, and it stays, whether or not its rounds send unions."""
    is_live = np.arange(50_000) // 256 % round(1 / live_blocks) == 0
    gradients = [[one * is_live.astype(np.float32) for one in draw(density, step)] for step in range(6)]

    results, notes = rounds(Auto().carried_by(network), gradients)
    fixed = [rounds(codec, gradients[:3])[0] for codec in Auto().choices.values()]

    assert chosen(notes) == [Choice.PACKED, *[best] * 5]
    times_ps = [round_ps(announced_cost(one[2]), network) for one in fixed]
    assert round_ps(announced_cost(results[2]), network) <= 1.05 * min(times_ps)


def test_a_sketch_whose_forecasts_fail_is_left() -> None:
    """Values of another magnitude every time: a sketch would be sent in vain, and the members again."""
    still = [[drawn(0.01, rank) for rank in range(3)]] * 6
    moving = [[one * np.float32(2.0 ** (-12 * step)) for one in own] for step, own in enumerate(still)]

    names = [chosen(rounds(Auto().carried_by(NETWORK), some)[1]) for some in (still, moving)]

    assert names[0][1:] == [Choice.CONCURRENT] * 5
    assert names[1][1:] == [Choice.CONCURRENT, *[Choice.PACKED] * 4]  # the first of them shows it


def test_figures_that_are_left_out_are_the_network_s() -> None:
    network = OneByOne(unit_elements=512, latency_ps=20 * US, rate_bps=25 * GBPS, memory_bps=900 * GBPS)
    given = Auto(latency_us=3, memory_gbps=7).carried_by(network)
    assert given.carrier == replace(network, latency_ps=3 * US, memory_bps=7 * GBPS)
    assert isinstance(given.carrier, OneByOne)
    assert Auto(rate_gbps=0.4).carried_by(network).carrier.rate_bps == 4 * 10**8
    assert given.choices[Choice.DENSE] == Dense("block_exponent", 512)
    assert Auto(unit_elements=64).carried_by(NETWORK).choices[Choice.DENSE] == Dense("block_exponent", 64)
