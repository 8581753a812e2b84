"""Switch profiles of a scenario's own: written in it, or in files of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from netfold.homomorphic.message import Merge
from netfold.sim.errors import ScenarioError
from netfold.sim.scenario import load
from netfold.sim.scenario.profiles import SwitchProfile, read_profile
from netfold.switch.limits import Profile
from netfold.switch.profiles import PROFILES
from tests.sim.scenario.files import changed, write

OWN = """\
name: mine
like: tofino1
summary: half a Tofino
stages: 6
pass_latency: 500ns
port_rate: 25Gbps
loopback_rate: 0bps
parser_limit: 1KiB
merges: [add, float_add]
overflows: [saturate]
is_lossless: true
adder_bits: [8, 32]
"""


def profiles(folder: Path, section: str, *sets: str) -> dict[str, Profile]:
    text = changed("topology:\n", f"profiles:\n{section}topology:\n")
    return dict(load(write(folder, text), sets).profiles)


def check(found: Profile) -> None:
    """It is what `OWN` says, and otherwise Tofino."""
    assert (found.name, found.summary, found.stages, found.port_rate_bps) == (
        *("mine", "half a Tofino"),
        *(6, 25 * 10**9),
    )
    assert (found.pass_latency_ps, found.loopback_rate_bps, found.parser_limit_bytes) == (500_000, 0, 1024)
    assert (found.merges, found.overflows, found.is_lossless) == (
        {Merge.ADD, Merge.FLOAT_ADD},
        ("saturate",),
        True,
    )
    assert (found.kind, found.salus_per_stage, found.phv_bits) == ("pipeline", 4, 4096)
    assert found.adder_bits == (8, 32)


def test_in_the_scenario(tmp_path: Path) -> None:
    indented = "".join(f"    {line}\n" for line in OWN.splitlines())
    found = profiles(tmp_path, f"  -{indented[3:]}")["mine"]

    check(found)
    assert found.sources["stages"] == f"{tmp_path}/scenario.yaml:4"
    assert found.sources["phv_bits"] == PROFILES["tofino1"].sources["phv_bits"]


def test_in_a_file_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(OWN, "utf-8")
    found = profiles(tmp_path, "  - own.yaml\n  - {name: other, like: trio}\n")

    assert list(found) == ["mine", "other"]
    check(found["mine"])
    check(read_profile(str(tmp_path / "own.yaml")))
    assert found["other"].memory_bytes == PROFILES["trio"].memory_bytes


def test_the_command_line_changes_them(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(OWN, "utf-8")

    assert profiles(tmp_path, "  - own.yaml\n", "profiles.mine.stages=7")["mine"].stages == 7
    check(profiles(tmp_path, "  - {name: other, like: trio}\n", "profiles=[own.yaml]")["mine"])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            OWN.replace("stages: 6", "stages: 0"),
            "own.yaml:4: stages: must be at least 1 in a pipeline, found 0\n  tofino1 has 12",
        ),
        (OWN.replace("[8, 32]", "[8, 12]"), "own.yaml:12: adder_bits.1: cannot use 12\n  allowed: 8, 16, 32"),
        (OWN.replace("like: tofino1\n", ""), "own.yaml:1: the key 'like' is missing\n  like: Known profile"),
        ("stages: [\n", "own.yaml:2: broken YAML"),
    ],
)
def test_a_mistake_in_a_file_is_told_with_its_line_there(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(text, "utf-8")

    with pytest.raises(ScenarioError) as alone:
        read_profile(str(path))
    with pytest.raises(ScenarioError) as in_scenario:
        profiles(tmp_path, "  - own.yaml\n")
    assert str(alone.value).startswith(f"{tmp_path}/{told}")
    assert str(in_scenario.value).startswith(f"{tmp_path}/")
    assert told.partition("\n")[0].rpartition(": ")[2] in str(in_scenario.value)


def test_every_key_is_a_field_of_profiles() -> None:
    """What a scenario may change is named as there, without units."""
    fields = {
        key.removesuffix(unit) for key in Profile.__dataclass_fields__ for unit in ("_bps", "_ps", "_bytes")
    }

    assert set(SwitchProfile.model_fields) - {"like"} <= fields
