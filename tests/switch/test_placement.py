"""Register arrays in stages: the geometry of memory, and laws of the placement."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.switch.placement import blocks_of, place
from netfold.switch.profiles import PROFILES
from netfold.switch.program import VALUES, Program, Register
from netfold.switch.programs import declare
from netfold.switch.programs.tree import TREE
from tests.examples import examples

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
