"""Profiles: every number has its source, and what users write is read or refused in full."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from netfold.homomorphic.message import Merge
from netfold.switch.custom import derived
from netfold.switch.limits import FIXED, FORWARDING, KINDS, MEMORY, OVERFLOWS, PIPELINE, Profile, ProfileError
from netfold.switch.profiles import PROFILES
from tests import ROOT

FACTS = [field.name for field in fields(Profile) if field.name not in ("name", "summary", "kind", "sources")]
EVERY_PROFILE = pytest.mark.parametrize("found", PROFILES.values(), ids=lambda found: found.name)


@EVERY_PROFILE
def test_every_number_has_a_source_and_every_source_a_number(found: Profile) -> None:
    said = {name for name in FACTS if getattr(found, name)}

    assert said == set(found.sources)
    assert all(len(text) > 6 for text in found.sources.values())


@EVERY_PROFILE
def test_a_kind_and_what_it_can_do(found: Profile) -> None:
    assert found.kind in KINDS
    assert set(found.overflows) <= set(OVERFLOWS)
    assert Merge.GATHER not in found.merges
    assert found.is_programmable == (found.kind != FORWARDING) == bool(found.merges)
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

    assert (found.kind, found.is_programmable) == (MEMORY, True)
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
    with pytest.raises(ProfileError) as refused:
        derived(name, like, changes, "here")
    assert message == str(refused.value)


def test_the_profile_in_the_readme(capsys: pytest.CaptureFixture[str]) -> None:
    """More and wider stages, so that 128 words are added in one pass; one more reads them out."""
    text = (ROOT / "switch" / "README.md").read_text("utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)

    exec(code, {})

    assert capsys.readouterr().out == "1\n"
