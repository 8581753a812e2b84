"""Options of switch programs: their defaults, and those that belong to others."""

from __future__ import annotations

from pathlib import Path

import pytest

from netfold.sim.collectives.in_network.section import InNetworkSection
from netfold.sim.errors import ScenarioError
from netfold.sim.scenario import load
from tests.sim.scenario.files import write

ONE = """\
name: one
topology: {kind: star, hosts: 8}
workers: 2
workload: {kind: synthetic, elements: 1000}
codec: {kind: fixed_point}
collective:
  kind: in_network
"""


def collective(folder: Path, *lines: str) -> InNetworkSection:
    (variant,) = load(write(folder, ONE + "".join(f"  {line}\n" for line in lines))).variants
    assert isinstance(variant.collective, InNetworkSection)
    return variant.collective


def refused(folder: Path, *lines: str) -> str:
    with pytest.raises(ScenarioError) as caught:
        collective(folder, *lines)
    return str(caught.value).replace(f"{folder}/scenario.yaml", "FILE")


def test_timed_slots_need_their_timer(tmp_path: Path) -> None:
    found = collective(tmp_path, "program: timed", "slot_timer: 1ms")
    assert (found.frame, found.slots, found.message_packets, found.slot_timer) == (
        "udp-1024",
        "auto",
        1,
        10**9,
    )

    assert refused(tmp_path, "program: timed") == (
        "FILE:6: collective.slot_timer: program timed needs a slot timer\n  for example slot_timer: 1ms"
    )


@pytest.mark.parametrize(
    ("program", "line", "owners"),
    [
        ("switchml", "slot_timer: 1ms", "program timed"),
        ("tree", "entries: 10", "program atp"),
        ("atp", "timeout_max: 1s", "programs switchml and timed"),
        ("atp", "message_packets: 1", "program switchml"),
    ],
)
def test_options_of_other_programs_are_refused(tmp_path: Path, program: str, line: str, owners: str) -> None:
    key = line.partition(":")[0]

    assert refused(tmp_path, f"program: {program}", line) == (
        f"FILE:9: collective.{key}: {key} belongs to {owners}, found program {program}\n  remove it"
    )


def test_values_that_a_program_cannot_have_are_refused(tmp_path: Path) -> None:
    assert refused(tmp_path, "program: atp", "overflow: wrap") == (
        "FILE:9: collective.overflow: program atp keeps words at the limit, where its server sees them; "
        "found 'wrap'\n  use sticky, or leave it out"
    )
    assert refused(tmp_path, "program: timed", "slot_timer: 0us") == (
        "FILE:9: collective.slot_timer: must be more than 0\n  a slot that does not wait aggregates nothing"
    )


@pytest.mark.parametrize(
    ("program", "frame", "hint"),
    [
        ("switchml", "roce-2048", "did you mean 'roce-1024'? allowed: udp-256, udp-1024, roce-1024"),
        ("tree", "udp-256", "allowed: roce-1024, roce-2048"),
        ("atp", "udp-256", "allowed: atp"),
    ],
)
def test_every_program_has_frames_of_its_own(tmp_path: Path, program: str, frame: str, hint: str) -> None:
    assert refused(tmp_path, f"program: {program}", f"frame: {frame}", "slot_timer: 1ms").startswith(
        f"FILE:9: collective.frame: cannot use '{frame}' with program {program}\n  {hint}"
    )
