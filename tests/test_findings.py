"""The page says what the code says; and what the code says agrees with theory.

Lines that are quick are computed again, and must be the same. The others are checked in the page as it
stands, and in smaller runs, against closed forms; bounds are four standard deviations of what is drawn.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from docs.findings import evolution, faults, floats, hashing, index, overflow, threshold
from docs.findings.table import PAGE, Line, digits, names, shown
from docs.findings.tables import ALL
from netfold.homomorphic.codec import codec_kinds
from netfold.homomorphic.fold import fold
from netfold.homomorphic.message import Note, NoteKind, Round
from netfold.homomorphic.sketch import REPAIRED_TILING, ROTATED_TILING
from tests.examples import nightly

pytestmark = nightly
QUICK = [(table.name, line) for table in ALL for line in table.lines if line.is_quick]


@pytest.mark.parametrize("table", ALL, ids=lambda table: table.name)
def test_the_page_has_every_line(table) -> None:
    width = len(table.heading)

    assert [line[: len(table.lines[0].label)] for line in shown(table.name)] == [
        line.label for line in table.lines
    ]
    assert {len(line) for line in shown(table.name)} == {width}
    assert f"| {' | '.join(table.heading)} |\n" in PAGE.read_text("utf-8")


def test_the_page_has_every_table() -> None:
    assert names(PAGE.read_text("utf-8")) == [table.name for table in ALL]


@pytest.mark.parametrize(("name", "line"), QUICK, ids=lambda one: one if isinstance(one, str) else None)
def test_quick_lines_are_the_same_again(name: str, line: Line) -> None:
    assert line.label + line.figures() in shown(name)


def test_the_threshold_and_rounds_are_those_of_the_literature() -> None:
    """Molloy 2005: 0.818; the share left is a fixed point, and nothing is left below."""
    left = evolution.left_at_last(0.9)
    others = -math.log(1 - left ** (1 / 3))

    assert evolution.threshold() == pytest.approx(0.818469, abs=1e-6)
    assert others == pytest.approx(3 * 0.9 * left ** (2 / 3))
    assert evolution.left_at_last(0.818) == 0
    assert evolution.left_after(0.5, 0) == 1
    assert evolution.left_after(0.5, 1) == pytest.approx((1 - math.exp(-1.5)) ** 3)


@pytest.mark.parametrize("load", [0.3, 0.45, 0.75])
def test_published_columns_fail_as_expected_and_repaired_ones_do_not(load: float) -> None:
    """At loads that keep a lane's 0.4, 0.8, 1.2 and 1.6 times away from the threshold, lanes being small."""
    seeds = range(100, 104)
    case = hashing.Case("columns", 2**21, 4096, hashing.COLUMN_DENSITY, load)
    expected, spread = evolution.left_in_columns(4, case.density, load)

    left = np.mean([hashing.published(case, seed) for seed in seeds])

    assert abs(left - expected) < 4 * spread / math.sqrt(1024 * len(seeds))
    for shape in (ROTATED_TILING, REPAIRED_TILING):
        assert [hashing.sent_again(shape, case, seed) for seed in seeds] == [0] * len(seeds)


@pytest.mark.parametrize("case", [case for case in hashing.CASES if case.elements == hashing.SMALL[-1]])
def test_the_codec_estimates_what_the_table_says(case: hashing.Case) -> None:
    """The same members, through the whole codec."""
    words = case.index(seed=3).view(np.uint8)
    gradient = np.unpackbits(words, bitorder="little", count=case.elements).astype(np.float32)
    notes: list[Note] = []
    for setting in ("published", "rotated", "repaired"):
        encoder = codec_kinds()["lossless"](setting=setting, values="block_exponent").worker(0, 1, 0)
        fold([encoder], [gradient], Round(0, 0, 1, seed=3, report=notes.append))

    assert [note.kind for note in notes] == [NoteKind.ESTIMATE]
    assert notes[0].count / notes[0].total == pytest.approx(hashing.published(case, seed=3))


def test_columns_of_the_page_are_as_expected() -> None:
    """Lanes that see different columns are independent; those that see the same count once."""
    lines = [line for line in shown("hashing") if line[0].startswith("columns")]

    assert len(lines) == 6
    for pattern, _, _, load, measured, *_ in lines:
        width = int(pattern.split()[1])
        columns = hashing.columns_of_lane(width)
        expected, spread = evolution.left_in_columns(columns, hashing.COLUMN_DENSITY, float(load))
        lanes = width // columns * hashing.SEEDS
        assert abs(float(measured.split()[0]) / 100 - expected) < 4 * spread / math.sqrt(lanes) + 1e-3


def test_what_the_page_says_is_sent_again() -> None:
    """Nothing; but in small tensors, rows of whole blocks meet as one, wherever `rotated` turns them."""
    for pattern, parameters, *_, rotated, repaired in shown("hashing"):
        assert repaired == "0"
        assert (rotated == "0") != (pattern == "rows, 4096 wide" and parameters == "0.41 M")


@pytest.mark.parametrize("load", [0.5, 0.7, 0.75])
def test_tables_fail_as_often_as_two_members_share_all_counters(load: float) -> None:
    trials = 3000
    expected = evolution.success(load, 500)
    spread = math.sqrt(expected * (1 - expected) / trials)

    # Rarer ways to fail (three members in four counters) come on top of those expected.
    assert abs(threshold.succeeded(500, load, trials) - expected) < 4 * spread + 0.002


def test_the_knee_is_at_the_threshold() -> None:
    assert threshold.succeeded(50_000, 0.80, 5) == 1
    assert threshold.succeeded(50_000, 0.83, 5) == 0


@pytest.mark.parametrize("load", threshold.ROUNDS_LOADS)
def test_rounds_are_those_of_density_evolution(load: float) -> None:
    """Whether the last member leaves a round earlier or later is chance, near the threshold three rounds."""
    measured = np.mean([threshold.peeled(2**16, load, seed)[1] for seed in range(4)])

    assert abs(measured - evolution.rounds_needed(load, 2**16)) < (1.5 if load < 0.8 else 3)


@pytest.mark.parametrize("load", faults.LOADS)
def test_a_lost_contribution_is_always_noticed(load: float) -> None:
    """In other tables than the page's as many are wrong on average, give or take how tables differ."""
    page = next(float(line[2]) for line in shown("lost-counter") if line[:2] == (digits(load), "int32"))
    damage = [faults.damaged(load, 1, seed) for seed in range(900, 912)]
    means = [np.mean(table.wrong) for table in damage]
    error = np.std(means, ddof=1) * math.sqrt(1 / len(means) + 1 / faults.TABLES)

    assert all(all(table.is_noticed) for table in damage)
    assert sum(len(table.is_noticed) for table in damage) > 600
    assert abs(np.mean(means) - page) < 4 * error


@pytest.mark.parametrize("name", faults.CODECS)
def test_codecs_notice_a_lost_word_or_do_not(name: str) -> None:
    kind, options = faults.CODECS[name]
    trials = [faults.codec_trial(codec_kinds()[kind](**options), seed) for seed in range(1000, 1006)]

    if "rotated" in name or "repaired" in name:
        assert trials == [(0, True)] * len(trials)
    elif kind == "lossless":
        assert {told for _, told in trials} == {False}
        assert max(wrong for wrong, _ in trials) > 1
    else:
        assert trials == [(1, False)] * len(trials)


@pytest.mark.parametrize("distribution", floats.DISTRIBUTIONS)
def test_digits_are_rounded_once_and_shared_floats_lose_the_small(distribution: str) -> None:
    gradients = floats.gradients_of(floats.DISTRIBUTIONS[distribution], 0.5, 2**21, seed=11)
    published, alone, exact = (
        floats.errors_of(name, gradients) for name in ("published", "float32 alone", "repaired, exact")
    )

    assert exact.largest <= 2.0**-24 * (1 + 1e-6)
    assert published.median < 1e-6
    assert published.of_largest_sum < 1e-5
    assert published.most > (4 if distribution == "normal" else 100) * alone.most


def test_adders_that_wrap_lose_nothing() -> None:
    wraps, saturates, sticks = (overflow.summed(adder, 100, members=64_000) for adder in overflow.ADDERS)

    assert wraps == overflow.Summed(0, 0, False)
    assert (saturates.dense_wrong, sticks.dense_wrong) == (0, 0)
    assert saturates.wrong > 0
    assert sticks.wrong > 0
    assert saturates.is_noticed
    assert sticks.is_noticed


@pytest.mark.parametrize("density", [0.002, 0.02])
@pytest.mark.parametrize("name", index.KINDS)
def test_indexes_are_as_large_as_expected(name: str, density: float) -> None:
    """Within four standard deviations of the number of members, and two 64-bit words of rounding up."""
    elements = 2**19
    spread = 4 / math.sqrt(density * elements)

    measured = index.measured_bits(name, density, elements)

    assert measured == pytest.approx(index.expected_bits(name, density), rel=spread, abs=128 / elements)
