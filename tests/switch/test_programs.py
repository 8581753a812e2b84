"""Switch programs beside plain ones: SwitchML, trees of switches, timed slots, one of a user."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netfold.commands import main
from netfold.homomorphic.message import Merge
from netfold.sim.engine.engine_data import Overflow
from netfold.sim.scenario.load import schema
from netfold.switch.program import ROCE_1024, Demand, Machine, ProgramSpec, programs, runnable
from netfold.switch.programs import switchml, timed, tree
from netfold.switch.programs.timed import TIMED
from netfold.switch.programs.tree import TREE
from netfold.switch.registers import MERGE, OVERWRITE, VERDICTS, add_lanes, new_registers
from tests.reference.switch.merging import Operand, Register
from tests.reference.switch.switchml import SwitchmlReference
from tests.reference.switch.timed import Row as TimedRow
from tests.reference.switch.timed import TimedReference
from tests.reference.switch.tree import Row, TreeReference
from tests.registry import registered
from tests.sim.scenes import TINY, job_of, only, refused, simulate

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
SLOTS, ELEMENTS = 3, 2
SLOT = 1  # whose packets these are
MACHINES: dict[Machine, tuple[Callable[..., tuple[int, int]], Callable[..., Any]]] = {
    Machine.SWITCHML: (switchml.process_packet, SwitchmlReference),
    Machine.TREE: (tree.process_packet, TreeReference),
    Machine.TIMED: (timed.process_packet, TimedReference),
}
OLD = [70, INT32_MAX]


class Both:
    """The slots of a switch that runs a program for one job, and the plain ones of its reference."""

    def __init__(self, program: Machine, children: int) -> None:
        self.program, self.children = program, children
        self.process, reference = MACHINES[program]
        self.registers = new_registers(SLOTS, ELEMENTS)
        self.reference = reference(children, SLOTS, Overflow.WRAP)

    def hold(self, row: int, **fields: int) -> Register:
        """Set a row by hand; returns what the reference is to hold beside the same fields."""
        for name, value in {**fields, "exponent": 3}.items():
            self.registers.slots[row][name] = value
        self.registers.values[row] = OLD
        return Register(list(OLD), exponent=3, workers=6)

    def send(self, child: int, generation: int) -> None:
        """A packet of two workers' words: both take it alike."""
        row = 2 * SLOT if self.program is Machine.TREE else 2 * SLOT + generation % 2
        words, is_timed = [5, INT32_MIN], self.program is Machine.TIMED
        slots, values = self.registers.slots, self.registers.values[row]
        verdict, action = self.process(slots, row, child, self.children, generation if is_timed else -4)
        if action == OVERWRITE:
            values[:] = words
        elif action == MERGE:
            add_lanes(values, np.array(words, np.int32), 32, int(Overflow.WRAP))
        operand = Operand(words, Merge.ADD, exponent=-4, workers=2)
        told = self.reference.packet(child, SLOT, generation if is_timed else generation % 2, operand)
        register = self.reference.register(SLOT, generation % 2)

        assert VERDICTS[verdict] == told.name.lower()
        assert values.tolist() == register.read(ELEMENTS)
        assert is_timed or slots[row].exponent == register.exponent


EVERY_CHILDREN = pytest.mark.parametrize("children", [1, 2, 3, 32])


def states(children: int) -> Iterator[tuple[int, int]]:
    """Bitmaps of children, and who sends: all, or of 32 those in which the last bit of a word matters."""
    full, last = 2**children - 1, 1 << children - 1
    bitmaps = range(full + 1) if children < 32 else (0, 1, last, full - last, full)
    return product(bitmaps, range(children) if children < 32 else (0, 31))


@EVERY_CHILDREN
def test_every_state_of_a_slot_of_switchml(children: int) -> None:
    """States that only a fault leaves included; every child sends version 0, and had sent version 1."""
    for (bitmap, child), counter in product(states(children), range(3)):
        both = Both(Machine.SWITCHML, children)
        slot = both.reference.slots[SLOT]
        slot.bitmap, slot.counter, slot.answered = [bitmap, 2**children - 1], [counter, 9], [True, True]
        slot.registers = [
            both.hold(
                2 + generation,
                bitmap=slot.bitmap[generation],
                counter=slot.counter[generation],
                is_answered=1,
            )
            for generation in (0, 1)
        ]
        both.send(child, 0)

        rows = both.registers.slots[2:4]
        assert (slot.bitmap, slot.counter) == (rows["bitmap"].tolist(), rows["counter"].tolist())
        assert slot.answered == rows["is_answered"].tolist()


@EVERY_CHILDREN
def test_every_state_of_a_slot_of_a_tree(children: int) -> None:
    for bitmap, child in states(children):
        both = Both(Machine.TREE, children)
        row = both.reference.rows[SLOT] = Row(bitmap, both.hold(2, bitmap=bitmap))
        both.send(child, 7)

        assert row.bitmap == both.registers.slots[2]["bitmap"]
        assert not both.registers.values[3].any()


@EVERY_CHILDREN
def test_every_state_of_a_timed_slot(children: int) -> None:
    """Its row for even generations is at 4: the packet's generation is older, the same, or newer."""
    for (bitmap, child), is_emitted, generation in product(states(children), (False, True), range(0, 10, 2)):
        both = Both(Machine.TIMED, children)
        held = both.hold(2, generation=4, bitmap=bitmap, is_emitted=is_emitted)
        row = both.reference.rows[SLOT][0] = TimedRow(4, bitmap, held, is_emitted)
        both.send(child, generation)

        found = both.registers.slots[2]
        assert (row.generation, row.bitmap, row.is_emitted) == (
            found["generation"],
            found["bitmap"],
            bool(found["is_emitted"]),
        )


def test_a_timed_slot_waits_from_its_first_turn_on_until_it_has_answered() -> None:
    slots = new_registers(2, 2).slots
    slots.generation[1:], slots.is_emitted[1:] = [0, 0, 2], [False, True, False]

    assert TIMED.is_waiting(slots).tolist() == [False, True, False, True]


SUMMARY = "slots of a tree, few and short"
ON_TOY = ("collective.program=toy", "collective.frame=roce-1024", "topology.switch=ideal")


@pytest.fixture(autouse=True)
def toy() -> Iterator[ProgramSpec]:
    spec = replace(
        TREE,
        name="toy",
        title="the toy",
        summary=SUMMARY,
        released=Demand(workers=4, slots=3, words=64),
        fits_fixed=False,
        frames=(ROCE_1024,),
        frame="roce-1024",
        may_be_tree=False,
    )
    with registered(spec):
        yield spec
    assert "toy" not in programs()


def test_it_is_placed_on_a_switch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["netfold", "switch", "fit", "toy", "--profile", "ideal", "--json"])
    with pytest.raises(SystemExit) as stop:
        main.main()

    found = json.loads(capsys.readouterr().out)
    assert stop.value.code == 0
    assert (found["program"], found["demand"]["slots"], found["values_bytes"]) == ("toy", 3, 3 * 64 * 4)


def test_it_is_in_the_schema() -> None:
    program = schema()["$defs"]["InNetworkSection"]["properties"]["program"]

    assert program["enum"] == list(runnable())
    assert "toy" in program["enum"]
    assert f"toy: {SUMMARY}" in " ".join(program["description"].split())


def test_a_scenario_has_its_defaults(toy: ProgramSpec, tmp_path: Path) -> None:
    text = TINY.replace("  frame: udp-256\n", "")
    job = job_of(only(tmp_path, "collective.program=toy", "topology.switch=ideal", text=text))

    assert (job.program, job.frame.name, job.unit_packets) == (toy, "roce-1024", 1)


def test_a_scenario_is_told_what_it_lacks(tmp_path: Path) -> None:
    udp = refused(tmp_path, "collective.program=toy")
    tree = refused(tmp_path, *ON_TOY, "collective.aggregators=tree")
    sharp = refused(tmp_path, *ON_TOY, "topology.switch=sharp")
    lossy = refused(tmp_path, *ON_TOY, "topology.switch=tofino1")

    assert "cannot use 'udp-256' with program toy\n  allowed: roce-1024" in udp
    assert "aggregators belongs to programs switchml and tree, found program toy" in tree
    assert "sharp runs program tree alone, found toy" in sharp
    assert "program toy does not recover from lost packets" in lossy


def test_it_runs(tmp_path: Path) -> None:
    found = simulate(tmp_path, *ON_TOY, "collective.slots=3")
    same = simulate(tmp_path, *ON_TOY, "collective.program=tree", "collective.slots=3")

    assert {check.verdict for check in found.checks} == {"pass"}
    assert [step.end_ps for step in found.steps] == [step.end_ps for step in same.steps]
