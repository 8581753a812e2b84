"""The JSON Schema takes what the loader takes, and refuses what it would refuse."""

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from netfold.homomorphic.codec import codec_kinds
from netfold.sim.scenario import schema
from tests import ROOT
from tests.sim.scenario.files import GOOD, changed

SCENARIOS = sorted((ROOT / "scenarios").rglob("*.yaml"))
VALIDATOR = Draft202012Validator(schema())


def read(text: str) -> Any:
    return YAML(typ="safe", pure=True).load(text)


def test_it_is_a_schema_and_json() -> None:
    Draft202012Validator.check_schema(schema())

    assert schema() == json.loads(json.dumps(schema()))


@pytest.mark.parametrize(
    "text", [GOOD, *(path.read_text() for path in SCENARIOS)], ids=["good", *map(str, SCENARIOS)]
)
def test_scenarios_match(text: str) -> None:
    VALIDATOR.validate(read(text))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("topology:", "topolgy:"),
        ("100Gbps", "100gbps"),
        ("density: 5%", "density: 1.5"),
        ("udp-256", "udp-257"),
        ("      window: 64", "      slots: 64"),
        ("kind: fixed_point", "kind: fixed"),
        ("  - name: switch", "  - codec: {kind: none}"),
        ("name: quick", "nmae: quick"),
        ("topology:\n", "profiles: [{name: mine, stage: 3}]\ntopology:\n"),
        ("topology:\n", "profiles: [{name: mine, like: tofino1, pass_latency: 1}]\ntopology:\n"),
    ],
)
def test_mistakes_do_not_match(old: str, new: str) -> None:
    assert not VALIDATOR.is_valid(read(changed(old, new)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("seed: 7", "profiles: [own.yaml, {name: mine, like: tofino1, pass_latency: 1us}]"),
        ("seed: 7", "x-seed: [7]"),
        ("  hosts: 8", "  hosts: 8\n  x-hosts: [9]"),
        ("kind: fixed_point", "kind: fixed_point\n  x-why: fast"),
        ("  - name: switch", "  - name: switch\n    x-why: fast"),
    ],
)
def test_own_profiles_and_keys_that_nobody_reads_match(old: str, new: str) -> None:
    VALIDATOR.validate(read(changed(old, new)))


def test_every_key_is_described_and_defaults_look_like_the_file() -> None:
    definitions = schema()["$defs"]
    undescribed = [
        f"{name}.{key}"
        for name, definition in definitions.items()
        for key, value in definition.get("properties", {}).items()
        if key != "kind" and "description" not in value
    ]

    assert undescribed == []
    assert definitions["Star"]["properties"]["rate"]["default"] == "100Gbps"
    assert definitions["InNetworkSection"]["properties"]["timeout_max"]["default"] == "100ms"


def test_every_codec_is_in_it() -> None:
    kinds = [member["properties"]["kind"]["const"] for member in schema()["properties"]["codec"]["anyOf"]]

    assert list(codec_kinds()) == kinds
