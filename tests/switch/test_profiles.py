"""Profiles: every number has its source, and what users write is read or refused in full."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from netfold.homomorphic.codec import Merge
from netfold.switch.custom import profile_from
from netfold.switch.limits import FIXED, FORWARDING, KINDS, MEMORY, OVERFLOWS, PIPELINE, Profile, ProfileError
from netfold.switch.profiles import PROFILES, nearest
from tests import ROOT

FACTS = [field.name for field in fields(Profile) if field.name not in ("name", "summary", "kind", "sources")]
EVERY_PROFILE = pytest.mark.parametrize("found", PROFILES.values(), ids=lambda found: found.name)


def test_a_wrong_name_is_told_the_nearest() -> None:
    assert nearest("tofino3", ("plain", "tofino2")) == "did you mean 'tofino2'? known: plain, tofino2"
    assert nearest("xyz", ("plain", "tofino2")) == "known: plain, tofino2"


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
    found = profile_from(
        {
            "name": "big",
            "like": "tofino1",
            "stages": 24,
            "merges": ["add", "float_add"],
            "overflows": ["saturate"],
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
    sums = {"merges": ["add"], "overflows": ["wrap"]}
    found = profile_from({"name": "nic", "like": "plain", "kind": "memory", **sums}, "here")

    assert (found.kind, found.is_programmable) == (MEMORY, True)
    assert profile_from({"name": "tree", "like": "trio", "kind": "fixed"}, "here").kind == FIXED


MISTAKES: dict[str, tuple[dict[str, object], str]] = {
    "no name": ({"name": None}, "f.yaml: name: must be a name, found None; for example like: tofino1"),
    "known name": ({"name": "trio"}, "f.yaml: name: 'trio' is a known profile; use another name"),
    "unknown base": (
        {"like": "tofino"},
        "f.yaml: like: there is no switch profile 'tofino'; "
        "did you mean 'tofino2'? known: plain, ideal, tofino1, tofino2, sharp, fpga, trio",
    ),
    "text for a number": (
        {"stages": "12"},
        "f.yaml: stages: must be a whole number of at least 0, found '12'; 0 is no limit",
    ),
    "negative": (
        {"memory_bytes": -1},
        "f.yaml: memory_bytes: must be a whole number of at least 0, found -1; 0 is no limit",
    ),
    "truth for a number": (
        {"pipes": True},
        "f.yaml: pipes: must be a whole number of at least 0, found True; 0 is no limit",
    ),
    "number for a truth": (
        {"has_timers": 1},
        "f.yaml: has_timers: must be true or false, found 1; for example false",
    ),
    "text for a list": (
        {"merges": "add"},
        "f.yaml: merges: must be a list, found 'add'; of: add, or, max, float_add, sign, table_add",
    ),
    "unknown merge": (
        {"merges": ["add", "float"]},
        "f.yaml: merges: there is no 'float'; "
        "did you mean 'float_add'? known: add, or, max, float_add, sign, table_add",
    ),
    "gather": (
        {"merges": ["gather"]},
        "f.yaml: merges: there is no 'gather'; known: add, or, max, float_add, sign, table_add",
    ),
    "unknown overflow": (
        {"overflows": ["saturated"]},
        "f.yaml: overflows: there is no 'saturated'; did you mean 'saturate'? known: wrap, saturate, sticky",
    ),
    "unknown kind": (
        {"kind": "pipelined"},
        "f.yaml: kind: there is no 'pipelined'; "
        "did you mean 'pipeline'? known: forwarding, memory, pipeline, fixed",
    ),
    "no overflow": (
        {"overflows": []},
        "f.yaml: overflows: a switch that adds up does something to sums that leave int32; "
        "name one at least: wrap, saturate, sticky",
    ),
    "pipeline without stages": (
        {"stages": 0},
        "f.yaml: stages: must be at least 1 in a pipeline, found 0; tofino1 has 12",
    ),
    "rows too narrow": (
        {"block_row_bits": 32},
        "f.yaml: block_row_bits: must be at least 64 in a pipeline, found 32; tofino1 has 128",
    ),
    "pipeline of nothing": (
        {"like": "ideal", "kind": "pipeline"},
        "f.yaml: pipes: must be at least 1 in a pipeline, found 0; tofino1 has 4",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_in_full(mistake: str) -> None:
    changes, told = MISTAKES[mistake]
    with pytest.raises(ProfileError) as refused:
        profile_from({"name": "own", "like": "tofino1", **changes}, "f.yaml")
    assert told == str(refused.value)


def test_an_unknown_key() -> None:
    with pytest.raises(ProfileError) as refused:
        profile_from({"name": "own", "like": "tofino1", "stage": 3}, "f.yaml")
    assert (refused.value.where, refused.value.key) == ("f.yaml", "stage")
    assert str(refused.value).startswith("f.yaml: stage: unknown key; did you mean 'stages'? known: name,")
    assert refused.value.hint.startswith("did you mean 'stages'? known: name, like, summary, kind, merges,")
    with pytest.raises(ProfileError, match="sources: unknown key"):
        profile_from({"name": "own", "like": "tofino1", "sources": {}}, "f.yaml")


def test_the_profile_in_the_readme(capsys: pytest.CaptureFixture[str]) -> None:
    """More and wider stages, so that 128 words are added in one pass; one more reads them out."""
    text = (ROOT / "switch" / "README.md").read_text("utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)

    exec(code, {})

    assert capsys.readouterr().out == "1\n"
