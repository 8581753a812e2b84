"""Switch profiles of a scenario's own: written in it, or in files of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from netfold.homomorphic.message import Merge
from netfold.sim.commands.main import app
from netfold.sim.errors import ScenarioError
from netfold.sim.scenario import load, schema
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


def test_without_any(tmp_path: Path) -> None:
    assert load(write(tmp_path, changed("seed: 7", "seed: 8"))).profiles == {}


def test_the_command_line_changes_them(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(OWN, "utf-8")

    assert profiles(tmp_path, "  - own.yaml\n", "profiles.mine.stages=7")["mine"].stages == 7
    check(profiles(tmp_path, "  - {name: other, like: trio}\n", "profiles=[own.yaml]")["mine"])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            OWN.replace("stages: 6", "stages: six"),
            "own.yaml:4: stages: must be a whole number, found 'six'\n  stages: Stages of a pipeline.",
        ),
        (
            OWN.replace("stages: 6", "stages: 0"),
            "own.yaml:4: stages: must be at least 1 in a pipeline, found 0\n  tofino1 has 12",
        ),
        (OWN.replace("stages: 6", "stages: -1"), "own.yaml:4: stages: must be at least 0, found -1"),
        (OWN.replace("stages: 6", "pipes: true"), "own.yaml:4: pipes: must be a whole number, found true"),
        (
            OWN.replace("is_lossless: true", "is_lossless: 1"),
            "own.yaml:11: is_lossless: must be true",
        ),
        (OWN.replace("[8, 32]", "[8, 12]"), "own.yaml:12: adder_bits.1: cannot use 12\n  allowed: 8, 16, 32"),
        (OWN.replace("[saturate]", "saturate"), "own.yaml:10: overflows: must be a list, found 'saturate'"),
        (
            OWN.replace("[saturate]", "[saturated]"),
            "own.yaml:10: overflows.0: cannot use 'saturated'\n  did you mean 'saturate'?",
        ),
        (
            OWN.replace("float_add", "gather"),
            "own.yaml:9: merges.1: cannot use 'gather'\n  allowed: add",
        ),
        (
            OWN.replace("stages: 6", "stage: 6"),
            "own.yaml:4: stage: unknown key 'stage'\n  did you mean",
        ),
        (OWN.replace("stages: 6", "kind: memory"), "own.yaml:4: kind: unknown key 'kind'"),
        (OWN.replace("stages: 6", "sources: {}"), "own.yaml:4: sources: unknown key 'sources'"),
        (OWN.replace("like: tofino1\n", ""), "own.yaml:1: the key 'like' is missing\n  like: Known profile"),
        ("- mine\n", "own.yaml:1: must be a mapping, found a list"),
        ("", "own.yaml:1: must be a mapping, found nothing"),
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


def test_commands_take_a_file(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("name: large\nlike: tofino1\nmap_rams_per_stage: 64\n", "utf-8")

    def run_netfold(*words: str) -> str:
        return CliRunner().invoke(app, words).output

    assert run_netfold("switch", "fit", "switchml", "--profile", str(path), "--slots", "15000").startswith(
        "switchml on large: 8 workers, 15000 slots, 64 words a packet\n"
    )
    assert "│ map_rams_per_stage " in run_netfold("switch", "profiles", str(path))
    missing = str(tmp_path / "none.yaml")
    assert run_netfold("switch", "fit", "switchml", "--profile", missing) == (
        f"{missing}: cannot read '{missing}': there is no such file\n"
        "  give a mapping, or the path of a YAML file with one, relative to the scenario file\n"
    )


def test_every_key_is_a_field_of_profiles() -> None:
    """What a scenario may change is named as there, without units."""
    fields = {
        key.removesuffix(unit) for key in Profile.__dataclass_fields__ for unit in ("_bps", "_ps", "_bytes")
    }

    assert set(SwitchProfile.model_fields) - {"like"} <= fields


@pytest.mark.parametrize(
    ("item", "is_right"),
    [
        ("own.yaml", True),
        ({"name": "mine", "like": "tofino1", "pass_latency": "1us"}, True),
        ({"name": "mine", "like": "tofino1", "pass_latency": 1}, False),
        ({"name": "mine", "stage": 3}, False),
    ],
)
def test_the_schema_knows_them(item: object, is_right: bool) -> None:
    assert Draft202012Validator(schema()).is_valid({"name": "a", "profiles": [item]}) == is_right
