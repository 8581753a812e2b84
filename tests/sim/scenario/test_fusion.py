"""The keys of buckets, fusion and tensors: what they mean, and what is said of mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from ruamel.yaml import YAML

from netfold.sim.errors import ScenarioError
from netfold.sim.scenario import load, schema
from netfold.sim.workload.fusion.none import NoFusion
from netfold.sim.workload.fusion.one import ONE_BUCKET
from netfold.sim.workload.fusion.partition import AsGiven
from netfold.sim.workload.fusion.rule import Fusion
from netfold.sim.workload.fusion.size import BySize
from netfold.sim.workload.sections import GradientFile, Synthetic, Training
from tests.sim.scenario.files import changed, write

ELEMENTS = "kind: synthetic\n  elements: 1000\n  density: 5%"


def workload(text: str) -> str:
    """The scenario with another workload; the lines of `text` are its keys."""
    return changed(ELEMENTS, text.replace("\n", "\n  "))


def rules(folder: Path, text: str, *sets: str) -> list[Fusion]:
    """The rule of each variant."""
    found = [variant.workload for variant in load(write(folder, text), sets).variants]
    assert all(isinstance(one, Training | Synthetic | GradientFile) for one in found)
    return [one.fusion.rule() for one in found]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("kind: synthetic\nelements: 10", ONE_BUCKET),
        ("kind: synthetic\nelements: 10\nbucket: 8KiB", BySize(8192)),
        ("kind: synthetic\nelements: 10\nbucket:", ONE_BUCKET),
        ("kind: synthetic\nelements: 10\nfusion: {kind: size, bytes: 8KiB}", BySize(8192)),
        ("kind: synthetic\nelements: 10\nfusion: {kind: none}", NoFusion()),
        (
            "kind: training\nmodel: mlp\nfusion: {kind: partition, buckets: [['2'], [1]]}",
            AsGiven((("2",), (1,))),
        ),
    ],
)
def test_rules_and_their_short_form(tmp_path: Path, text: str, rule: Fusion) -> None:
    assert rules(tmp_path, workload(text)) == [rule, rule]
    Draft202012Validator(schema()).validate(YAML(typ="safe", pure=True).load(workload(text)))


def test_the_short_form_merges_as_the_long_one(tmp_path: Path) -> None:
    """A variant or the command line may say the other than the file."""
    short = workload("kind: synthetic\nelements: 10\nbucket: 8KiB")
    variant = short.replace("  - name: ring", "  - name: ring\n    workload: {fusion: {kind: none}}")
    back = variant.replace("bucket: 8KiB", "fusion: {kind: one}").replace(
        "{fusion: {kind: none}}", "{bucket: 2B}"
    )

    assert rules(tmp_path, variant) == [BySize(8192), NoFusion()]
    assert rules(tmp_path, back) == [ONE_BUCKET, BySize(2)]
    assert rules(tmp_path, variant, "workload.bucket=1KiB") == [BySize(1024)] * 2
    assert rules(tmp_path, variant, "workload.fusion={kind: one}") == [ONE_BUCKET] * 2
    assert rules(tmp_path, short, "workload.fusion.bytes=3B") == [BySize(3)] * 2
    assert rules(tmp_path, variant, "variants.ring.workload.bucket=1KiB") == [BySize(8192), BySize(1024)]


def test_a_change_to_tensors_drops_the_elements_and_back(tmp_path: Path) -> None:
    text = workload("kind: synthetic\nelements: 10")
    text = text.replace("  - name: ring", "  - name: ring\n    workload: {tensors: [3x4, 4]}")

    def found(*sets: str) -> list[tuple[int | None, tuple[str | int, ...] | None]]:
        workloads = [variant.workload for variant in load(write(tmp_path, text), sets).variants]
        return [(one.elements, one.tensors) for one in workloads if isinstance(one, Synthetic)]

    assert found() == [(10, None), (None, ("3x4", 4))]
    assert found("workload.elements=7") == [(7, None)] * 2
    assert found("workload.tensors=[a=5x5]") == [(None, ("a=5x5",))] * 2
    assert found("variants.switch.workload.tensors=[5]") == [(None, (5,)), (None, ("3x4", 4))]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "kind: synthetic\nelements: 10\nbucket: 8KiB\nfusion: {kind: none}",
            "12: workload.bucket: bucket and fusion are both given\n"
            "  bucket: 8KiB is short for fusion: {kind: size, bytes: 8KiB}: leave out one",
        ),
        ("kind: synthetic\nelements: 10\nbucket: 0B", "workload.bucket: must be more than 0, found '0B'"),
        (
            "kind: synthetic\ndensity: 1%",
            "workload: the key 'elements' is missing\n  give the elements of the gradient",
        ),
        (
            "kind: synthetic\nelements: 10\ntensors: [10]",
            "workload: elements and tensors are both given\n  the tensors say how many: leave out elements",
        ),
        (
            "kind: synthetic\ntensors: [3x, 4]",
            "workload.tensors: cannot read the tensor '3x'\n"
            "  a tensor is written 128x64, or with its name fc1.weight=128x64",
        ),
        ("kind: synthetic\ntensors: [a=3, a=4]", "workload.tensors: the name 'a' appears twice"),
    ],
)
def test_mistakes_are_reported_where_they_are(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(write(tmp_path, workload(text)))

    assert message in str(caught.value)
