"""A program that one file registers can be placed, written in a scenario, and run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from netfold.sim.commands import main
from netfold.sim.scenario.schema import schema
from netfold.switch.formats import ROCE_1024
from netfold.switch.program import Demand, ProgramSpec, register, unregister
from netfold.switch.programs import programs, runnable
from netfold.switch.programs.tree import TREE
from tests.sim.scenes import TINY, job_of, only, refused, simulate

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
    yield register(spec)
    unregister("toy")
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
