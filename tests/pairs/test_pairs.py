"""Every pair of kinds runs and is right, or is refused for a reason that is declared.

A pair is covered if it is in a row that runs to its end and is judged from outside, or if it is itself what
netfold has to refuse, and does, with the reason. At night, triples.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.codec import Encoder, Exchange
from netfold.homomorphic.message import Gradient, Round
from netfold.sim.collectives.collective import collectives
from netfold.sim.studies.matrix import rows_of
from netfold.topologies.kinds.ring import Ring
from tests.examples import PROFILE, examples
from tests.pairs.array import (
    Combination,
    CoveringArray,
    Factors,
    Row,
    combinations_in,
    combinations_of,
    covering_array,
    row_with,
)
from tests.pairs.factors import Space, has_switches
from tests.pairs.judge import faults_of_refusal, run_row
from tests.pairs.scenario import refused_row
from tests.registry import registered
from tests.sim.scenes import refused
from tests.sim.studies.matrix_toys import HasSetting, ScaledEncoder

STRENGTH = 3 if PROFILE == "nightly" else 2
SEED = 1
PARTS = 3  # tests of each codec
CODECS = [row.name for row in rows_of() if row.codec is not None]


@cache
def space() -> Space:
    """What is registered, when a test first asks."""
    return Space()


@cache
def array() -> CoveringArray:
    """The rows that have to run."""
    return covering_array(space().factors, STRENGTH, space().excluded, SEED)


def shown(row: Row, faults: list[str]) -> str:
    """A row and what is wrong with it, a line each."""
    return "\n  ".join([json.dumps(row), *faults])


@pytest.mark.slow  # the first makes the array
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("codec", CODECS)
def test_what_is_not_refused_runs_and_is_right(codec: str, part: int) -> None:
    rows = [row for row in array().rows if row["codec"] == codec][part::PARTS]
    results = [(row, run_row(row, space().stalls)) for row in rows]

    assert rows
    assert [shown(row, result.faults) for row, result in results if result.faults] == []


@pytest.mark.parametrize("codec", [*CODECS, "any"])
def test_what_cannot_go_together_is_refused_with_the_reason(codec: str) -> None:
    """By codec; `any`: whatever the codec."""
    faulty = []
    for combination in space().refusals:
        if dict(combination).get("codec", "any") == codec:
            row, reasons = refused_row(space(), combination)
            if faults := faults_of_refusal(row, reasons):
                faulty.append(shown(row, faults))

    assert faulty == []


def test_what_never_retransmits_ends_with_the_cause_of_its_stall() -> None:
    excluded = space().excluded - space().stalls
    for combination in space().stalls:
        rows = [row_with(space().factors, combination, excluded, seed) for seed in range(4)]
        results = [(row, run_row(row, space().stalls)) for row in rows if row is not None]

        assert [shown(row, result.faults) for row, result in results if result.faults] == []
        assert any(result.is_stalled for _, result in results)


@pytest.mark.parametrize(
    "collective", [kind for kind, spec in collectives().items() if not has_switches(spec)]
)
def test_a_program_without_switches_cannot_be_written(tmp_path: Path, collective: str) -> None:
    for program in filter(None, space().factors["program"][1:]):
        told = refused(tmp_path, f"collective={{kind: {collective}, program: {program}}}")
        assert "collective.program: unknown key 'program'" in told


def test_every_pair_is_in_a_row_that_runs_or_is_refused() -> None:
    every = set(combinations_of(space().factors, STRENGTH))
    ran = {combination for row in array().rows for combination in combinations_in(row, STRENGTH)}
    unwritable = {
        combination for combination in every if any(part <= combination for part in space().meaningless)
    }
    unable = [*space().refusals, *space().stalls]
    refusing = {
        combination for combination in every - unwritable if any(part <= combination for part in unable)
    }
    without = every - ran - unwritable - refusing
    print(
        f"\n{len(array().rows)} rows that run, {len(space().refusals)} that are refused and "
        f"{len(space().stalls)} that stall; of {len(every)} combinations of {STRENGTH} values "
        f"{len(ran)} ran, {len(refusing)} are refused or stall, {len(unwritable)} cannot be written"
    )

    assert without == set(array().impossible) == set()
    assert not ran & (unwritable | refusing)


@dataclass(frozen=True, kw_only=True)
class OwnRing(Ring):
    """A topology that only this file knows."""

    kind: ClassVar[str] = "own_ring"


@dataclass(frozen=True)
class Doubled(HasSetting):
    """A codec whose totals are twice the sums."""

    kind: ClassVar[str] = "doubled"

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        return DoubledEncoder(np.float32(self.scale))


class DoubledEncoder(ScaledEncoder):
    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        decoded = yield from super().exchange(gradient, round)
        return replace(decoded, total=2 * decoded.total)


def test_what_is_new_joins_by_itself() -> None:
    """A codec and a topology get rows with every value of the others; wrong totals of the codec are found."""
    with registered(OwnRing, HasSetting, Doubled):
        longer = Space()
        rows = covering_array(longer.factors, 2, longer.excluded, SEED).rows
        new = [row for row in rows if row["codec"].startswith(HasSetting.kind)]
        here = [row for row in rows if row["topology"] == OwnRing.kind]
        right = [run_row(row, longer.stalls) for row in (new[0], here[0])]
        wrong = run_row({**new[0], "codec": f"{Doubled.kind}:{Doubled.settings[0]}"}, longer.stalls)

    assert {row["topology"] for row in new} == set(longer.factors["topology"])
    assert {row["collective"] for row in new} == set(collectives())
    assert {row["codec"] for row in here} == set(longer.factors["codec"])
    assert [result.faults for result in right] == [[], []]
    assert "of the codec's bound" in wrong.faults[0]


def made(sizes: list[int]) -> Factors:
    return {f"f{index}": [f"v{value}" for value in range(size)] for index, size in enumerate(sizes)}


def all_rows(factors: Factors, refused: list[Combination]) -> list[Row]:
    """Every row that has nothing refused."""
    rows = [dict(zip(factors, values, strict=True)) for values in itertools.product(*factors.values())]
    return [row for row in rows if not any(choices <= row.items() for choices in refused)]


@st.composite
def arrays(draw: st.DrawFn) -> tuple[Factors, int, list[Combination]]:
    """Factors, a strength, and refused pairs and triples."""
    factors = made(draw(st.lists(st.integers(1, 4), min_size=2, max_size=5)))
    strength = draw(st.integers(1, min(3, len(factors))))
    wide = min(3, len(factors))
    able = [choices for size in range(2, wide + 1) for choices in combinations_of(factors, size)]
    return factors, strength, draw(st.lists(st.sampled_from(able), max_size=6))


@examples(200)
@given(arrays(), st.integers(0, 5))
def test_every_combination_is_in_a_row_or_in_none_that_there_could_be(
    drawn: tuple[Factors, int, list[Combination]], seed: int
) -> None:
    factors, strength, refused = drawn
    able = all_rows(factors, refused)
    rows, impossible = covering_array(factors, strength, refused, seed)

    assert all(row in able for row in rows)
    for combination in combinations_of(factors, strength):
        is_possible = any(combination <= row.items() for row in able)
        is_covered = any(combination <= row.items() for row in rows)
        assert is_covered == is_possible
        is_named = not any(choices <= combination for choices in refused)
        assert (combination in impossible) == (is_named and not is_possible)


@examples(100)
@given(arrays())
def test_a_row_with_some_choices(drawn: tuple[Factors, int, list[Combination]]) -> None:
    """Nothing else of it is refused."""
    factors, strength, refused = drawn
    for chosen in (*refused, *combinations_of(factors, strength)):
        others = [choices for choices in refused if not choices <= chosen]
        row = row_with(factors, chosen, refused, seed=1)
        able = [whole for whole in all_rows(factors, others) if chosen <= whole.items()]
        assert (row in able) if able else (row is None)


def test_the_same_arguments_make_the_same_rows() -> None:
    factors = made([5, 4, 3, 3])

    assert covering_array(factors, 2, seed=3) == covering_array(factors, 2, seed=3)
    assert covering_array(factors, 2, seed=3) != covering_array(factors, 2, seed=4)


@pytest.mark.parametrize(
    ("sizes", "strength", "most"),
    [
        ([2] * 10, 2, 12),  # 6 are possible
        ([3] * 13, 2, 24),  # 15 are known
        ([22, 13, 8, 5, 5, 5, 5, 2], 2, 1.15 * 22 * 13),
        ([2] * 6, 3, 18),  # 12 are known
    ],
)
def test_rows_are_few(sizes: list[int], strength: int, most: float) -> None:
    rows, impossible = covering_array(made(sizes), strength)

    assert len(rows) <= most
    assert impossible == []
