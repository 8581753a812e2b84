"""Switch programs beside plain ones: SwitchML, trees of switches, timed slots, one of a user."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from netfold.commands import main
from netfold.homomorphic.merge import Merge
from netfold.sim.engine.interface import Overflow
from netfold.sim.scenario.load import schema
from netfold.switch.program import ROCE_1024, Demand, Machine, ProgramSpec
from netfold.switch.programs import programs, runnable
from netfold.switch.programs.timed import TIMED
from netfold.switch.programs.tree import TREE
from netfold.switch.registers import new_registers
from tests.examples import examples
from tests.reference.switch.merging import NO_EXPONENT, Operand, Register
from tests.reference.switch.switchml import Slot
from tests.reference.switch.timed import Row as TimedRow
from tests.reference.switch.tree import Row
from tests.registry import registered
from tests.sim.scenes import TINY, job_of, only, refused, simulate
from tests.switch.pipeline import (
    ELEMENTS,
    GENERATIONS,
    INT32,
    SLOT_INDICES,
    SLOTS,
    LockStep,
    Packet,
    Pipeline,
    int32,
)

INT32_MAX = 2**31 - 1


class SwitchmlLockStep(LockStep):
    """SwitchML, with faults that its registers do not survive together, and results of a parent."""

    program = Machine.SWITCHML

    @rule(
        slot=SLOT_INDICES,
        generation=GENERATIONS,
        words=st.lists(INT32, max_size=ELEMENTS),
        exponent=st.integers(-128, 127),
        workers=st.integers(0, 9),
    )
    def keep(self, slot: int, generation: int, words: list[int], exponent: int, workers: int) -> None:
        """A result comes down from the parent."""
        result = Operand(words, Merge.ADD, exponent, workers, members=2**workers - 1)
        assert self.reference.keep(slot, generation, result) == self.pipeline.keep(slot, generation, result)

    @rule(slot=SLOT_INDICES)
    def clear(self, slot: int) -> None:
        """A fault: a slot is as at the start."""
        self.pipeline.clear(slot)
        self.reference.slots[slot] = Slot()

    @rule(
        slot=SLOT_INDICES,
        generation=GENERATIONS,
        names=st.sets(st.sampled_from(["bitmap", "counter", "values"])),
    )
    def clear_some(self, slot: int, generation: int, names: set[str]) -> None:
        """A fault: some registers of a slot lose their content, the others do not."""
        row, reference = 2 * slot + generation, self.reference.slots[slot]
        if "bitmap" in names:
            self.pipeline.registers.slots[row].bitmap = reference.bitmap[generation] = 0
        if "counter" in names:
            self.pipeline.registers.slots[row].counter = reference.counter[generation] = 0
        if "values" in names:
            self.pipeline.registers.values[row] = 0
            reference.registers[generation].values = []

    @invariant()
    def registers_are_equal(self) -> None:
        for slot, reference in enumerate(self.reference.slots):
            rows = self.pipeline.registers.slots[2 * slot : 2 * slot + 2]
            assert reference.bitmap == rows.bitmap.tolist()
            assert reference.counter == rows.counter.tolist()
            assert reference.answered == rows.is_answered.tolist()
            for generation, one in enumerate(reference.registers):
                assert one.read(ELEMENTS) == self.pipeline.words(slot, generation)
                assert (one.workers, one.members) == (rows[generation].workers, rows[generation].members)
                # Before a first packet an exponent says nothing.
                assert one.exponent in (NO_EXPONENT, rows[generation].exponent)


TestLockStep = SwitchmlLockStep.TestCase
TestLockStep.settings = settings(examples(30, at_night=2), stateful_step_count=40)


def test_float_sums_depend_on_the_order() -> None:
    """2^24 + 1 + 1 is 2^24 or 2^24 + 2 in float32, as the packets come."""
    great, one = (int(np.array([number], np.float32).view(np.int32)[0]) for number in (2.0**24, 1.0))

    def total(*words: int) -> float:
        pipeline = Pipeline(Machine.TREE, children=3)
        for child, word in enumerate(words):
            pipeline.receive(Packet(child, 0, 0, [word], Merge.FLOAT_ADD))
        return float(int32(pipeline.words(0, 0, 1)).view(np.float32)[0])

    assert total(great, one, one) == 2.0**24
    assert total(one, one, great) == 2.0**24 + 2


class TreeLockStep(LockStep):
    """TREE, with faults."""

    program = Machine.TREE

    @rule(slot=SLOT_INDICES)
    def clear(self, slot: int) -> None:
        """A fault: a slot is as at the start."""
        self.pipeline.clear(slot)
        self.reference.rows[slot] = Row()

    @rule(slot=SLOT_INDICES, names=st.sets(st.sampled_from(["bitmap", "values"])))
    def clear_some(self, slot: int, names: set[str]) -> None:
        """A fault: some registers of a slot lose their content, the others do not."""
        if "bitmap" in names:
            self.pipeline.registers.slots[2 * slot].bitmap = self.reference.rows[slot].bitmap = 0
        if "values" in names:
            self.pipeline.registers.values[2 * slot] = 0
            self.reference.rows[slot].register.values = []

    @invariant()
    def registers_are_equal(self) -> None:
        for slot, reference in enumerate(self.reference.rows):
            row, register = self.pipeline.registers.slots[2 * slot], reference.register
            assert reference.bitmap == row.bitmap
            assert register.read(ELEMENTS) == self.pipeline.words(slot, 0)
            assert register.workers == row.workers
            # Before a first packet an exponent says nothing.
            assert register.workers == 0 or register.exponent == row.exponent
        assert not self.pipeline.registers.values[1::2].any()


TestTreeInLockStep = TreeLockStep.TestCase
TestTreeInLockStep.settings = settings(examples(30, at_night=2), stateful_step_count=40)


def test_a_timed_slot_waits_from_its_first_turn_on_until_it_has_answered() -> None:
    slots = new_registers(2, 2).slots
    slots.generation[1:], slots.is_emitted[1:] = [0, 0, 2], [False, True, False]

    assert TIMED.is_waiting(slots).tolist() == [False, True, False, True]


class TimedLockStep(LockStep):
    """TIMED, with faults; workers learn of generations that ended without them."""

    program = Machine.TIMED

    def next_turn(self, child: int, slot: int) -> int:
        """The newest generation of the slot, or the next one for a worker that has sent that."""
        latest = [history[-1].generation for (_, of), history in self.sent.items() if of == slot and history]
        history = self.history(child, slot)
        if history and history[-1].generation == max(latest):
            return history[-1].generation + 1
        return max(latest, default=0)

    @rule(slot=SLOT_INDICES, generation=GENERATIONS)
    def time_out(self, slot: int, generation: int) -> None:
        row = self.reference.row(slot, generation)
        if row.generation >= 0 and not row.is_emitted:
            self.reference.time_out(slot, generation)
            self.pipeline.time_out(slot, generation)

    @rule(is_struck=st.sampled_from([False, False, False, True]))
    def clear(self, is_struck: bool) -> None:
        """A fault, not always: all slots are as at the start."""
        if is_struck:
            self.reference.clear()
            for slot in range(SLOTS):
                self.pipeline.clear(slot)

    @rule(slot=SLOT_INDICES, generation=GENERATIONS, names=st.sets(st.sampled_from(["bitmap", "values"])))
    def clear_some(self, slot: int, generation: int, names: set[str]) -> None:
        """A fault: some registers of a slot lose their content, the others do not."""
        row, reference = self.pipeline.row(slot, generation), self.reference.row(slot, generation)
        if "bitmap" in names:
            self.pipeline.registers.slots[row].bitmap = reference.bitmap = 0
        if "values" in names:
            self.pipeline.registers.values[row] = 0
            reference.register.values = []

    @invariant()
    def registers_are_equal(self) -> None:
        for slot in range(SLOTS):
            for generation in (0, 1):
                row = self.pipeline.registers.slots[self.pipeline.row(slot, generation)]
                reference = self.reference.row(slot, generation)
                assert (reference.generation, reference.bitmap) == (row.generation, row.bitmap)
                assert reference.is_emitted == bool(row.is_emitted)
                held = reference.register
                assert (held.workers, held.members) == (row.workers, row.members)
                assert reference.register.read(ELEMENTS) == self.pipeline.words(slot, generation)


TestTimedInLockStep = TimedLockStep.TestCase
TestTimedInLockStep.settings = settings(examples(30, at_night=2), stateful_step_count=40)


every_children = pytest.mark.parametrize("children", [1, 2, 3])
OLD = {"exponent": 3, "workers": 6, "members": 0b11}


def hold(both: LockStep, row: int, **fields: int) -> Register:
    """Set a row of the compiled registers by hand; returns the same for the reference."""
    for name, value in {**fields, **OLD}.items():
        both.pipeline.registers.slots[row][name] = value
    both.pipeline.registers.values[row, :2] = 70, -7
    return Register([70, -7], **OLD)


def send(both: LockStep, child: int, generation: int) -> None:
    """A packet for slot 1, of two workers' words; all registers are equal afterwards."""
    both.arrive(Packet(child, 1, generation, [5, INT32_MAX], exponent=-4, workers=2))
    both.registers_are_equal()


@every_children
def test_every_state_of_a_slot_of_switchml(children: int) -> None:
    """States that only a fault leaves included; every child sends version 0, and had sent version 1."""
    for bitmap, counter, child in product(range(2**children), range(3), range(children)):
        both = SwitchmlLockStep()
        both.start(children, Overflow.WRAP)
        slot = both.reference.slots[1]
        slot.bitmap, slot.counter, slot.answered = [bitmap, 2**children - 1], [counter, 9], [True, True]
        slot.registers = [
            hold(
                both,
                2 + generation,
                bitmap=slot.bitmap[generation],
                counter=slot.counter[generation],
                is_answered=1,
            )
            for generation in (0, 1)
        ]
        send(both, child, 0)


@every_children
def test_every_state_of_a_slot_of_a_tree(children: int) -> None:
    for bitmap, child in product(range(2**children), range(children)):
        both = TreeLockStep()
        both.start(children, Overflow.WRAP)
        both.reference.rows[1] = Row(bitmap, hold(both, 2, bitmap=bitmap))
        send(both, child, 7)


@every_children
def test_every_state_of_a_timed_slot(children: int) -> None:
    """Its row for even generations is at 4: the packet's generation is older, the same, or newer."""
    states = product(range(2**children), (False, True), range(children), range(0, 10, 2))
    for bitmap, is_emitted, child, generation in states:
        both = TimedLockStep()
        both.start(children, Overflow.WRAP)
        held = hold(both, 2, generation=4, bitmap=bitmap, is_emitted=is_emitted)
        both.reference.rows[1][0] = TimedRow(4, bitmap, held, is_emitted)
        send(both, child, generation)


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
