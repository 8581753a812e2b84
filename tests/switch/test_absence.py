"""What workers that may be absent cost on a switch: a register of contributors, and four bytes of header."""

from __future__ import annotations

from dataclasses import replace

import pytest

from netfold.switch.fit import fit
from netfold.switch.profiles import PROFILES
from netfold.switch.programs import declare, names_of, programs

PIPELINES = ["tofino1", "tofino2"]


def test_programs_that_carry_it() -> None:
    assert names_of(lambda program: program.carries_absence) == ["switchml", "tree", "timed"]


@pytest.mark.parametrize("program", ["switchml", "tree", "timed"])
def test_a_register_and_a_header_more(program: str) -> None:
    released = programs()[program].released
    plain = declare(program, released)
    more = declare(program, replace(released, may_be_absent=True))

    added = [one for one in more.registers if one.name not in {old.name for old in plain.registers}]
    assert [(one.name, one.bits, one.count) for one in added] == [("contributors", 32, 1)]
    assert added[0].entries == programs()[program].versions * released.slots
    assert more.header_bytes == plain.header_bytes + 4
    assert "contributors" in more.values.after


def test_a_custom_header_grows_as_well() -> None:
    demand = replace(programs()["switchml"].released, header_bytes=50, may_be_absent=True)
    assert declare("switchml", demand).header_bytes == 54


@pytest.mark.parametrize("profile", PIPELINES)
def test_switchml_still_fits_in_the_same_stages(profile: str) -> None:
    """The contributors' register is beside the counter: one ALU more, no stage more."""
    demand = programs()["switchml"].released
    plain = fit(PROFILES[profile], "switchml", demand)
    more = fit(PROFILES[profile], "switchml", replace(demand, may_be_absent=True))

    assert more.program.salus == plain.program.salus + 1
    assert len(more.stages) == len(plain.stages)
    assert "contributors" in [part.name for part in more.stages[2].parts]
