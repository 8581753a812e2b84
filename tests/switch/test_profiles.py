"""Profiles of switches, the placement of a program's tables in stages, two-word arithmetic."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from netfold.errors import OptionError
from netfold.homomorphic.merge import MERGEABLE, Merge
from netfold.sim.engine.engine_data import Overflow
from netfold.switch import registers as arithmetic
from netfold.switch.fit import blocks_of, place
from netfold.switch.profiles import (
    FIXED,
    FORWARDING,
    KINDS,
    MEMORY,
    OVERFLOWS,
    PIPELINE,
    PROFILES,
    Profile,
    derived,
)
from netfold.switch.program import VALUES, Program, Register, declare
from netfold.switch.programs.tree import TREE
from tests import ROOT
from tests.examples import examples
from tests.reference.switch.merging import added, added_lanes, keep_threshold, merged_signs, merged_word

FACTS = [field.name for field in fields(Profile) if field.name not in ("name", "summary", "kind", "sources")]
INT32 = st.integers(-(2**31), 2**31 - 1) | st.sampled_from([-(2**31), -(2**31) + 1, -1, 0, 1, 2**31 - 1])
EVERY_PROFILE = pytest.mark.parametrize("found", PROFILES.values(), ids=lambda found: found.name)


def int32(words: Sequence[int]) -> NDArray[np.int32]:
    return np.array(words, np.int32)


@EVERY_PROFILE
def test_every_number_has_a_source_and_every_source_a_number(found: Profile) -> None:
    said = {name for name in FACTS if getattr(found, name)}

    assert said == set(found.sources)
    assert all(len(text) > 6 for text in found.sources.values())


@pytest.mark.parametrize("name", ["bitmap_bits", "pass_latency_ps", "ecn_threshold_cells"])
def test_what_is_assumed_as_tofino_is_as_tofino(name: str) -> None:
    first, second = PROFILES["tofino1"], PROFILES["tofino2"]

    assert second.sources[name].startswith("assumed as Tofino")
    assert getattr(second, name) == getattr(first, name)


@EVERY_PROFILE
def test_a_kind_and_what_it_can_do(found: Profile) -> None:
    assert found.kind in KINDS
    assert set(found.overflows) <= set(OVERFLOWS)
    assert Merge.GATHER not in found.merges
    assert found.can_aggregate == (found.kind != FORWARDING) == bool(found.merges)
    assert bool(found.stages) == (found.kind == PIPELINE)


def test_a_profile_of_ones_own() -> None:
    found = derived(
        "big",
        "tofino1",
        {
            "stages": 24,
            "merges": frozenset({Merge.ADD, Merge.FLOAT_ADD}),
            "overflows": ("saturate",),
            "is_lossless": True,
            "summary": "twice the stages",
        },
        "net.yaml:7: profiles.big",
    )

    assert (found.name, found.summary, found.stages, found.salus) == ("big", "twice the stages", 24, 96)
    assert (found.merges, found.overflows) == ({Merge.ADD, Merge.FLOAT_ADD}, ("saturate",))
    assert found.is_lossless
    assert found.map_rams_per_stage == 48
    assert found.sources["stages"] == "net.yaml:7: profiles.big"
    assert found.sources["map_rams_per_stage"] == PROFILES["tofino1"].sources["map_rams_per_stage"]


def test_a_profile_of_another_kind() -> None:
    sums = {"merges": frozenset({Merge.ADD}), "overflows": ("wrap",)}
    found = derived("nic", "plain", {"kind": MEMORY, **sums}, "here")

    assert (found.kind, found.can_aggregate) == (MEMORY, True)
    assert derived("tree", "trio", {"kind": FIXED}, "here").kind == FIXED


MISTAKES: dict[str, tuple[str, str, dict[str, object], str]] = {
    "known name": ("trio", "tofino1", {}, "name: 'trio' is a known profile; use another name"),
    "unknown base": (
        "own",
        "tofino",
        {},
        "like: there is no switch profile 'tofino'; "
        "did you mean 'tofino2'? known: plain, ideal, tofino1, tofino2, sharp, fpga, trio",
    ),
    "no overflow": (
        "own",
        "tofino1",
        {"overflows": ()},
        "overflows: a switch that aggregates needs a policy for sums that leave int32; "
        "name at least one: wrap, saturate, sticky",
    ),
    "rows too narrow": (
        "own",
        "tofino1",
        {"block_row_bits": 32},
        "block_row_bits: must be at least 64 in a pipeline, found 32; tofino1 has 128",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_in_full(mistake: str) -> None:
    name, like, changes, message = MISTAKES[mistake]
    with pytest.raises(OptionError) as refused:
        derived(name, like, changes, "here")
    assert message == f"{refused.value.key}: {refused.value.message}; {refused.value.hint}"


def test_the_profile_on_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    """More and wider stages, so that 128 words are added in one pass; one more reads them out."""
    text = (ROOT / "docs" / "explanation" / "switch-resources.md").read_text("utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)

    exec(code, {})

    assert capsys.readouterr().out == "1\n"


TOFINO1 = PROFILES["tofino1"]


@pytest.mark.parametrize(
    ("entries", "bits", "blocks"),
    [
        (16_384, 64, 9),
        (40_000, 32, 11),
        (20_000, 32, 6),
        (20_479, 64, 11),
        (22_528, 64, 12),
        (22_529, 64, 13),
    ],
)
def test_blocks_of_an_array(entries: int, bits: int, blocks: int) -> None:
    """SwitchML's, ATP's in two passes and in one, INCA's; 12 is what an ALU has if all four are used."""
    assert blocks == blocks_of(Register(VALUES, entries, bits), TOFINO1)


@given(entries=st.integers(1, 200_000), bits=st.sampled_from([8, 16, 32, 64]))
@examples(50)
def test_one_block_is_spare_and_one_less_would_not_do(entries: int, bits: int) -> None:
    capacity = 1024 * (128 // bits)
    blocks = blocks_of(Register(VALUES, entries, bits), TOFINO1) - 1

    assert (blocks - 1) * capacity < entries <= blocks * capacity


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Registers of which each may wait for any before it."""
    names = [f"r{number}" for number in range(draw(st.integers(1, 6)))] + [VALUES]
    registers = tuple(
        Register(
            name,
            draw(st.integers(1, 60_000)),
            draw(st.sampled_from([8, 16, 32, 64])),
            after=tuple(
                draw(st.lists(st.sampled_from(names[:index]), max_size=2, unique=True)) if index else ()
            ),
            count=draw(st.integers(1, 12)),
        )
        for index, name in enumerate(names)
    )
    return replace(declare("tree", TREE.released), registers=registers)


@given(program=programs(), stages=st.integers(1, 20), salus=st.integers(1, 6))
@examples(100)
def test_a_placement_keeps_every_rule(program: Program, stages: int, salus: int) -> None:
    profile = replace(TOFINO1, stages=stages, salus_per_stage=salus)

    placement = place(program, profile)

    by_name = {register.name: register for register in program.registers}
    placed: Counter[str] = Counter()
    for stage in placement.stages:
        for part in stage.parts:
            waits_for = by_name[part.name].after
            assert all(placed[name] == by_name[name].count for name in waits_for)
        placed.update({part.name: part.arrays for part in stage.parts})
        needed = sum(part.arrays * blocks_of(by_name[part.name], profile) for part in stage.parts)
        assert stage.blocks == needed <= 48
        assert 0 < stage.salus <= salus
    assert len(placement.stages) <= stages
    assert {name: placed[name] + placement.left.get(name, 0) for name in by_name} == {
        register.name: register.count for register in program.registers
    }


@given(program=programs(), stages=st.integers(1, 20))
@examples(50)
def test_a_stage_more_never_has_room_for_less(program: Program, stages: int) -> None:
    left = [
        sum(place(program, replace(TOFINO1, stages=count)).left.values()) for count in (stages, stages + 1)
    ]

    assert left[1] <= left[0]


WRAP, SATURATE, STICKY = Overflow
PAIRS = st.lists(st.tuples(INT32, INT32), max_size=40)  # longer than a vector register, and not a multiple
FLOATS = st.floats(width=32) | st.sampled_from(
    [2.0**127, -(2.0**127), float("inf"), -float("inf"), 2.0**-149]
)


def sums(old: list[int], new: list[int], overflow: Overflow) -> tuple[list[int], int]:
    """What is in the registers after an addition, and how many words overflowed."""
    values = int32(old)
    overflowed = arithmetic.add(values, int32(new), int(overflow))
    return values.tolist(), overflowed


def merged(merge: Merge, old: list[int], new: list[int], threshold: int = 0, key: int = 0) -> list[int]:
    """What is in the registers after another merge."""
    values = int32(old)
    arithmetic.merge_without_overflow(values, int32(new), merge.number, np.int64(threshold), np.uint64(key))
    words: list[int] = values.tolist()
    return words


def bits(number: float) -> int:
    """The int32 whose bits are those of a float32."""
    return int(np.array([number], np.float32).view(np.int32)[0])


def test_numbers_of_merges_and_policies_are_the_engine_s() -> None:
    for merge in MERGEABLE:
        assert getattr(arithmetic, merge.name) == merge.number
    for overflow in Overflow:
        assert getattr(arithmetic, overflow.name) == overflow


LANES: dict[int, type[np.signedinteger[Any]]] = {8: np.int8, 16: np.int16, 32: np.int32}


def lane_sums(old: list[int], new: list[int], bits: int, overflow: Overflow) -> tuple[list[int], int]:
    """What is in the registers after an addition of words in lanes, and how many lanes overflowed."""
    values = int32(old)
    overflowed = arithmetic.add_lanes(values, int32(new), bits, int(overflow))
    return values.tolist(), overflowed


@pytest.mark.parametrize("bits", LANES)
@pytest.mark.parametrize("overflow", Overflow)
def test_sums_at_the_ends_of_a_lane(bits: int, overflow: Overflow) -> None:
    """In every second lane: those beside them have sums of their own. As vectors, and a rest."""
    most, count = 2 ** (bits - 1) - 1, 19 * 4
    ends = [*range(-most - 1, -most + 3), -5, -1, 0, 1, 7, *range(most - 2, most + 1)]
    for first, second in product(ends, ends):
        expected, is_over = added(first, second, overflow, bits)
        values = np.array([first, -3] * count, LANES[bits]).view(np.int32).tolist()
        words = np.array([second, 4] * count, LANES[bits]).view(np.int32).tolist()

        after, overflowed = lane_sums(values, words, bits, overflow)

        assert int32(after).view(LANES[bits]).tolist() == [expected, 1] * count
        assert overflowed == is_over * count
        if bits == 32:
            assert sums([first] * 19, [second] * 19, overflow) == ([expected] * 19, is_over * 19)


@pytest.mark.parametrize(
    ("overflow", "old", "new", "expected"),
    [
        (WRAP, 127, 1, (-128, True)),
        (WRAP, -128, -128, (0, True)),
        (SATURATE, 127, 1, (127, True)),
        (SATURATE, -128, -1, (-128, True)),
        (STICKY, 127, -5, (127, True)),  # only the register's own word sticks
        (STICKY, -5, 127, (122, False)),
        (STICKY, 127, 0, (127, False)),
        (STICKY, -127, 1, (-127, True)),
        (STICKY, -126, -2, (-128, False)),
        (STICKY, -126, -3, (-128, True)),
    ],
)
def test_sums_that_the_reference_says(
    overflow: Overflow, old: int, new: int, expected: tuple[int, bool]
) -> None:
    assert added(old, new, overflow, 8) == expected


@given(PAIRS, st.sampled_from([4, 8, 16, 32]), st.sampled_from(Overflow))
def test_sums_of_lanes_are_the_reference_s(
    pairs: list[tuple[int, int]], bits: int, overflow: Overflow
) -> None:
    expected = [added_lanes(old, new, bits, overflow) for old, new in pairs]
    found = lane_sums([old for old, _ in pairs], [new for _, new in pairs], bits, overflow)

    assert ([word for word, _ in expected], sum(count for _, count in expected)) == found


def test_votes_of_fifteen_workers_carry_nowhere_and_sixteen_in_every_counter() -> None:
    """Seven carries into a neighbour, and one out of the word."""
    values, votes = int32([0]), int32([0x11111111])
    counts = [arithmetic.add_lanes(values, votes, 4, int(WRAP)) for _ in range(15)]
    assert (counts, values.tolist()) == ([0] * 15, [-1])
    assert arithmetic.add_lanes(values, votes, 4, int(WRAP)) == 8
    assert values.tolist() == [0x11111110]
    for lane in range(8):
        values = int32([0])
        vote = int32([np.uint32(1 << 4 * lane).astype(np.int32)])
        assert [arithmetic.add_lanes(values, vote, 4, int(WRAP)) for _ in range(16)] == [0] * 15 + [1]
        assert values[0] == (16 << 4 * lane if lane < 7 else 0)


def test_numbers_of_merges_in_lanes() -> None:
    """Every pair has its own; merge and width are read from it."""
    numbers = {(merge, bits): arithmetic.number_of(merge, bits) for merge in Merge for bits in (4, 8, 16, 32)}
    assert len(set(numbers.values())) == len(numbers)
    assert max(numbers.values()) < 2**7  # a packet's field has eight bits, one of them the sign
    for (merge, bits), number in numbers.items():
        assert (arithmetic.merge_of(number), arithmetic.lane_bits_of(number)) == (merge.number, bits)
        assert arithmetic.has_narrow_lanes(number) == (bits < 32)
        assert bits < 32 or number == merge.number


@given(PAIRS, st.sampled_from([Merge.OR, Merge.MAX]))
def test_or_and_max_are_the_reference_s(pairs: list[tuple[int, int]], merge: Merge) -> None:
    expected = [merged_word(merge, old, new) for old, new in pairs]

    assert expected == merged(merge, [old for old, _ in pairs], [new for _, new in pairs])


@given(st.lists(st.tuples(FLOATS, FLOATS), max_size=20))
def test_float_sums_are_ieee_s(pairs: list[tuple[float, float]]) -> None:
    """Denormals, infinities and the sign of zero included."""
    old, new = [bits(a) for a, _ in pairs], [bits(b) for _, b in pairs]

    expected = [merged_word(Merge.FLOAT_ADD, a, b) for a, b in zip(old, new, strict=True)]
    assert expected == merged(Merge.FLOAT_ADD, old, new)


@pytest.mark.parametrize("pair", [(-5, -28), (-28, -5), (0x7F800001, 1), (1, -1), (0x7F800000, -8388608)])
def test_a_float_sum_that_is_no_number_is_always_the_same_word(pair: tuple[int, int]) -> None:
    """Of two NaN, of one, of infinities that cancel: not a NaN that depends on the order of operands."""
    assert merged(Merge.FLOAT_ADD, [pair[0]] * 20, [pair[1]] * 20) == [0x7FC00000] * 20


@given(PAIRS, st.integers(0, 40), st.integers(1, 40), st.integers(0, 2**64 - 1))
def test_signs_are_the_reference_s(pairs: list[tuple[int, int]], held: int, arriving: int, key: int) -> None:
    """Bits of the register survive where they differ from the packet's with probability held / total."""
    old, new = [a for a, _ in pairs[:12]], [b for _, b in pairs[:12]]
    threshold = keep_threshold(held, arriving)

    assert merged_signs(old, new, threshold, key) == merged(Merge.SIGN, old, new, threshold, key)


def test_signs_survive_as_often_as_they_are_many() -> None:
    """A register of three against a packet of one: 3/4 of 64,000 bits, within five standard deviations."""
    after = merged(Merge.SIGN, [-1] * 2000, [0] * 2000, keep_threshold(3, 1), 99)
    survived = sum((word % 2**32).bit_count() for word in after)

    assert abs(survived - 48_000) <= 5 * (64_000 * 3 / 16) ** 0.5
